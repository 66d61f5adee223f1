"""The word on other text: the error over items by its definition, its rate in simulated texts, and what is kept."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from report.statistics.test_contrasts import one
from report.statistics.test_verdicts import evidence
from report.store import Store
from swapformer.report.build import build, rebuild
from swapformer.report.results_csv import read_results
from swapformer.report.statistics.claim_fields import Term, difference
from swapformer.report.statistics.estimates import IdenticalEstimate, MeanEstimate, UnknownEstimate
from swapformer.report.statistics.other_text import item_error, scores_other_tokens, widened
from swapformer.report.statistics.power import seeds_for
from swapformer.report.statistics.verdicts import reconsider
from swapformer.results.items import COLUMNS, FEWEST, TOKENS, grouped, mean_items, npz, read_items, write_items
from swapformer.results.ledger import Ledger
from swapformer.task import measures

Rows = NDArray[np.float64]


def rows(nats: Rows, tokens: int = 1024) -> Rows:
    """Items of so many tokens, with a mean loss each."""
    counts = np.full(len(nats), float(tokens))
    return np.stack([nats * counts, counts, np.zeros_like(counts), counts, np.zeros_like(counts), counts / 8], axis=1)


def kept(values: dict[str, list[float]], items: dict[str, Rows]) -> object:
    return with_items(evidence(values), {arm: {"val": each} for arm, each in items.items()})


def with_items(seen: Any, items: Mapping[str, Mapping[str, Rows]]) -> Any:
    """The evidence with these items of each arm, as the mean over all of its seeds."""
    return replace(seen, items={arm: {seen.seeds: sets} for arm, sets in items.items()})


def test_the_error_of_one_arm_is_that_of_a_ratio_over_its_sequences() -> None:
    """torchmetrics' standard error of a trial, and a jackknife, which is another definition of the same."""
    draw = np.random.default_rng(0)
    tokens = draw.integers(5, 30, 200).astype(float)
    nats = tokens * draw.gamma(3.0, 0.5, 200)
    tokens, nats = (each[np.argsort(nats / tokens)].reshape(4, 50).T.ravel() for each in (tokens, nats))
    table = np.stack([nats, tokens, tokens, tokens, tokens, np.ones(200)], axis=1)
    found = item_error([Term(1.0, "a", "val/loss")], kept({"a": [1.0, 1.1]}, {"a": table}))  # type: ignore[arg-type]
    assert found is not None and found[1] == 200  # no four neighbours are more alike than others here
    assert found[0] == pytest.approx(float(measures.standard_error(torch.tensor(nats), torch.tensor(tokens))))
    left_out = [(nats.sum() - nats[i]) / (tokens.sum() - tokens[i]) for i in range(200)]
    jackknife = math.sqrt(199 / 200 * float(((np.array(left_out) - np.mean(left_out)) ** 2).sum()))
    assert found[0] == pytest.approx(jackknife, rel=0.02)


def test_what_arms_share_in_an_item_is_no_error_of_their_difference() -> None:
    draw = np.random.default_rng(1)
    hard, own = draw.normal(2.0, 0.5, 100), draw.normal(0.0, 0.01, 100)
    seen = kept({"a": [2.0, 2.1], "b": [1.0, 1.2]}, {"a": rows(hard + own), "b": rows(hard)})
    apart = item_error(difference("a", "b", "val/loss"), seen)  # type: ignore[arg-type]
    alone = item_error([Term(1.0, "a", "val/loss")], seen)  # type: ignore[arg-type]
    assert apart is not None and apart[0] == pytest.approx(own.std(ddof=1) / 10, rel=1e-6)
    assert alone is not None and alone[0] > 20 * apart[0]


@pytest.mark.parametrize("metric", ["val/perplexity", "probe/x", "val/loss@64"])
def test_nothing_is_said_where_items_were_not_kept_or_it_is_no_ratio(metric: str) -> None:
    seen = kept({"a": [2.0, 2.1]}, {"a": rows(np.arange(40.0))})
    assert item_error([Term(1.0, "a", metric)], seen) is None  # type: ignore[arg-type]


def shares_said(believed: bool, texts: int = 400) -> float:
    """How often texts at whose mean the claim is just false give “supported, on other text too”."""
    draw, said = np.random.default_rng(2), 0
    for _ in range(texts):
        difference = draw.normal(0.0, 0.05, 40)  # of an item, over all texts: none
        seeds = difference.mean() + draw.normal(0.0, 0.001, 5)
        values = {"a": (2 + seeds).tolist(), "b": [2.0] * 5}
        items = {"a": rows(2 + difference), "b": rows(np.full(40, 2.0))}
        seen = kept(values, items if believed else {"a": rows(np.full(40, 2.0)), "b": rows(np.full(40, 2.0))})
        verdict = one(seen, worse={"arm": "a", "than": "b", "metric": "val/loss", "margin": 0.0})  # type: ignore[arg-type]
        said += verdict.outcome == "supported" and verdict.elsewhere != "on this text only"
    return said / texts


def test_at_a_margins_edge_other_text_is_promised_in_5_percent_of_texts_at_most() -> None:
    assert shares_said(believed=True) <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / 400)
    assert shares_said(believed=False) > 0.3, "the planted fault: items that all say the same"


def test_a_verdict_says_whether_it_holds_elsewhere_and_of_what() -> None:
    draw = np.random.default_rng(3)
    noisy, clear = draw.normal(0.3, 2.0, 40), draw.normal(0.3, 0.01, 40)
    for each, said in ((noisy, "only"), (clear, "too")):
        seen = kept({"a": [2.3, 2.31, 2.29], "b": [2.0, 2.0, 2.0]}, {"a": rows(2 + each), "b": rows(np.full(40, 2.0))})
        body = {"arm": "a", "than": "b", "metric": "val/loss", "margin": 0.1}
        verdict = one(seen, worse=body)  # type: ignore[arg-type]
        assert verdict.outcome == "supported" and verdict.elsewhere.endswith(said) and "text" in verdict.elsewhere
        samples = one(replace(seen, generated=True), worse=body)  # type: ignore[arg-type, type-var]
        assert "samples" in samples.elsewhere
    assert one(evidence({"a": [2.3, 2.31], "b": [2.0, 2.0]}), worse=body).elsewhere == ""


def test_a_verdict_that_is_given_up_says_nothing_of_other_text() -> None:
    items = {"a": rows(np.full(40, 2.3)), "b": rows(np.linspace(1.99, 2.01, 40))}
    seen: Any = kept({"a": [2.3, 2.31, 2.29], "b": [2.0, 2.0, 2.0]}, items)
    verdict = one(seen, worse={"arm": "a", "than": "b", "metric": "val/loss", "margin": 0.1})
    assert verdict.outcome == "supported" and verdict.elsewhere == "on other text too"
    lost = np.array([False, False, True])
    values = {**seen.values, ("b", "val/loss"): np.where(lost, math.nan, 2.0)}
    later = replace(seen, values=values, finished={**seen.finished, "b": ~lost}, diverged={**seen.diverged, "b": lost})
    again = reconsider(verdict, later)
    assert again.outcome == "undecided" and again.elsewhere == ""


def test_a_difference_of_other_tokens_is_judged_by_the_wider_interval_only() -> None:
    draw = np.random.default_rng(4)
    values = evidence({"a": [2.0, 2.01, 1.99]})
    longer = {("a", "val/loss@64"): np.array([1.9, 1.912, 1.888]), **values.values}
    plain = replace(values, values=longer)
    items = {"a": {"val": rows(draw.normal(2.0, 1.0, 40)), "val@64": rows(draw.normal(1.9, 1.0, 40), 1000)}}
    claim = {"weights": {"a": {"val/loss@64": 1, "val/loss": -1}}, "below": 0.0}
    metrics = ("val/loss", "val/loss@64")
    assert one(plain, metrics=metrics, contrast=claim).outcome == "undecided", "items were not kept"
    foreign = one(replace(plain, elsewhere=True), metrics=metrics, contrast=claim)
    assert foreign.outcome == "supported" and "these tokens only" in foreign.notes[0], "seeds alone"
    wide = one(with_items(plain, items), metrics=metrics, contrast=claim)
    assert wide.outcome == "undecided" and wide.contrasts[0].estimate.value == pytest.approx(-0.1)


def test_blocks_of_two_lengths_over_one_text_score_the_same_tokens() -> None:
    """The context differs by the same in each item, which no spread between items can hide."""
    draw = np.random.default_rng(4)
    hard = draw.normal(2.0, 1.0, 40)
    values = evidence({"a": [2.0, 2.01, 1.99]})
    values = replace(values, values={("a", "val/loss@64"): np.array([1.9, 1.912, 1.888]), **values.values})
    claim = {"weights": {"a": {"val/loss@64": 1, "val/loss": -1}}, "below": 0.0}
    short, long = rows(hard), rows(hard - 0.1)
    short[:, COLUMNS.index("bytes")] = long[:, COLUMNS.index("bytes")] = draw.integers(900, 1000, 40)
    seen = with_items(values, {"a": {"val": short, "val@64": long}})
    assert one(seen, metrics=("val/loss", "val/loss@64"), contrast=claim).outcome == "supported"
    samples = replace(seen, generated=True)  # as many tokens in each, as samples of one task have
    assert one(samples, metrics=("val/loss", "val/loss@64"), contrast=claim).outcome == "undecided"
    named = replace(seen, evaluated={"a": {"val": frozenset({"blocks"}), "val@64": frozenset({"longer blocks"})}})
    assert one(named, metrics=("val/loss", "val/loss@64"), contrast=claim).outcome == "supported"


def test_two_splits_and_other_data_under_one_name_are_other_tokens() -> None:
    draw = np.random.default_rng(4)
    hard = draw.normal(2.0, 1.0, 40)
    seen: Any = kept({"a": [2.0, 2.1], "b": [1.9, 2.0]}, {"a": rows(hard), "b": rows(hard - 0.1)})
    splits = with_items(seen, {"a": {"val": rows(hard), "test": rows(hard - 0.1)}})
    assert scores_other_tokens([Term(1.0, "a", "test/loss"), Term(-1.0, "a", "val/loss")], splits)
    terms = difference("b", "a", "val/loss")
    for there, apart in (("x", False), ("y", True)):
        data = {"a": {"val": frozenset({"x"})}, "b": {"val": frozenset({there})}}
        assert scores_other_tokens(terms, replace(seen, evaluated=data)) == apart
    assert not scores_other_tokens(terms, replace(seen, evaluated={"a": {"val": frozenset({"x"})}})), "not known of b"
    alone = [item_error([Term(1.0, arm, "val/loss")], seen) for arm in ("a", "b")]
    both = item_error(terms, replace(seen, evaluated=data))
    assert both is not None and both[0] == pytest.approx(math.hypot(*(each[0] for each in alone if each is not None)))


def test_of_two_texts_the_one_with_fewer_items_says_how_sure_the_error_is() -> None:
    """Its t quantile is the wider one."""
    draw = np.random.default_rng(4)
    seen: Any = kept({"a": [2.0, 2.1]}, {})
    splits = {"val": rows(draw.normal(2.0, 1.0, 40)), "test": rows(draw.normal(2.0, 1.0, 9))}
    terms = [Term(1.0, "a", "test/loss"), Term(-1.0, "a", "val/loss")]
    for sets in (splits, dict(reversed(splits.items()))):
        found = item_error(terms, with_items(seen, {"a": sets}))
        assert found is not None and found[1] == 9


def test_items_of_one_text_may_be_larger_in_one_set_than_in_the_other() -> None:
    """Blocks four times as long: the error is that of the differences over the larger items, by hand."""
    draw = np.random.default_rng(4)
    hard, gain = draw.normal(2.0, 1.0, 40), 0.1 + draw.normal(0.0, 0.01, 40)
    short, long = rows(hard), rows(hard - gain)
    long = long.reshape(10, 4, -1).sum(axis=1)
    values = evidence({"a": [2.0, 2.01, 1.99]})
    values = replace(values, values={("a", "val/loss@64"): np.array([1.9, 1.912, 1.888]), **values.values})
    terms = [Term(1.0, "a", "val/loss@64"), Term(-1.0, "a", "val/loss")]
    claim = {"weights": {"a": {"val/loss@64": 1, "val/loss": -1}}, "below": 0.0}
    expected = gain.reshape(10, 4).mean(axis=1).std(ddof=1) / math.sqrt(10)
    for sets in ({"val": short, "val@64": long}, {"val@64": long, "val": short}):
        seen = with_items(values, {"a": sets})
        error, items = item_error(terms, seen) or (math.nan, 0)
        assert items == 10 and error == pytest.approx(float(expected))
        assert one(seen, metrics=("val/loss", "val/loss@64"), contrast=claim).outcome == "supported"
    other = long.copy()
    other[3, :2], other[4, :2] = long[3, :2] * 0.9, long[4, :2] + 0.1 * long[3, :2]  # as many tokens, cut elsewhere
    seen = with_items(values, {"a": {"val": short, "val@64": other}})
    assert one(seen, metrics=("val/loss", "val/loss@64"), contrast=claim).outcome == "undecided", "the planted fault"


def test_more_seeds_do_not_make_the_error_over_items_smaller() -> None:
    """The seeds that would decide, against a simulation; none where the items alone leave it open."""
    few = widened(MeanEstimate(0.045, 5, 0.02), 0.01, 200)
    needed = seeds_for(few, (0.0, math.inf), 0.04)
    assert needed is not None and needed.low is not None and needed.high is not None
    draw, n = np.random.default_rng(6), needed.high
    decided = 0
    for _ in range(400):
        seeds = draw.normal(0.045 + draw.normal(0, 0.01), 0.02 * math.sqrt(5), n)
        again = widened(MeanEstimate(float(seeds.mean()), n, float(seeds.std(ddof=1)) / math.sqrt(n)), 0.01, 200)
        decided += again.lower(0.04) > 0
    assert 0.72 < decided / 400 < 1
    assert seeds_for(widened(MeanEstimate(0.03, 5, 0.001), 0.02, 200), (0.0, math.inf), 0.04) is None


def test_a_difference_of_other_tokens_that_is_decided_holds_for_other_text() -> None:
    """Its interval has the error over items in it, and is not widened by that again."""
    draw = np.random.default_rng(4)
    values = evidence({"a": [2.0, 2.001, 1.999]})
    values = replace(values, values={("a", "test/loss"): np.array([1.9541, 1.9548, 1.9531]), **values.values})
    item = draw.normal(0.0, 1.0, 200)
    item = (item - item.mean()) / item.std(ddof=1) * 0.2
    seen = with_items(values, {"a": {"val": rows(2 + item), "test": rows(1.954 - item)}})
    claim = {"weights": {"a": {"test/loss": 1, "val/loss": -1}}, "below": 0.0}
    verdict = one(seen, metrics=("val/loss", "test/loss"), contrast=claim)
    assert verdict.outcome == "supported" and verdict.elsewhere == "on other text too"
    assert verdict.notes == ("its terms score other tokens, so its interval includes the error over 200 items",)
    (note,) = one(replace(seen, items={}), metrics=("val/loss", "test/loss"), contrast=claim).notes
    assert note == "its terms score other tokens, and without sums over items nothing is known of how these differ"
    same = with_items(seen, {"a": {"val": rows(2 + item), "test": rows(2 + item)}})
    of_one = {"weights": {"a": {"val/loss": 1, "val/accuracy": -1}}, "below": 5.0}
    same = replace(same, values={("a", "val/accuracy"): np.array([0.5, 0.51, 0.49]), **same.values})
    assert one(same, metrics=("val/loss", "val/accuracy"), contrast=of_one).notes == ()


def test_an_estimate_that_is_no_mean_stays_as_it_is() -> None:
    assert widened(UnknownEstimate(), 0.1, 40) == UnknownEstimate()
    wide = widened(MeanEstimate(0.3, 5, 0.03), 0.04, 41)
    assert isinstance(wide, MeanEstimate) and wide.standard_error == pytest.approx(0.05) and wide.paired
    assert not widened(MeanEstimate(0.3, 5, 0.03, 6.5), 0.04, 41).paired
    assert widened(wide, 0.04, 41) == wide, "an error over items is added once"
    assert wide.freedom == pytest.approx(0.05**4 / (0.03**4 / 4 + 0.04**4 / 40))
    silent = widened(IdenticalEstimate(0.3, 5), 0.04, 41)
    assert silent.lower(0.04) == -math.inf and silent.p_above(0.0) == 1.0, "equal seeds say nothing of the mean"
    share = widened(IdenticalEstimate(1.0, 5, 0.0, 1.0), 1e-9, 41)
    assert share.lower(0.04) == IdenticalEstimate(1.0, 5, 0.0, 1.0).lower(0.04)


def test_items_keep_the_sums_and_are_a_thousand_tokens_or_a_thirtysecond() -> None:
    draw = np.random.default_rng(5)
    for sequences, longest in ((40, 4), (500, 64), (4000, 64)):
        table = draw.integers(1, longest, (sequences, len(COLUMNS))).astype(float)
        found = grouped(table)
        assert found.sum(axis=0) == pytest.approx(table.sum(axis=0))
        assert len(found) >= FEWEST - 2
        size = min(TOKENS, table[:, 1].sum() / FEWEST)
        assert np.abs(found[:-1, 1] - size).max() <= longest + 1
    assert grouped(np.zeros((0, len(COLUMNS)))).shape == (0, len(COLUMNS))
    silent = np.vstack([np.ones((FEWEST, len(COLUMNS))), np.zeros((1, len(COLUMNS)))])
    assert len(grouped(silent)) == FEWEST, "a sequence without a target at the end is no item"


def test_items_survive_the_disk_and_a_damaged_file_holds_none(tmp_path: Path) -> None:
    path = tmp_path / "items.npz"
    write_items(path, {"val": rows(np.arange(40.0)), "val@64": rows(np.arange(50.0))})
    found = read_items(path)
    assert found.keys() == {"val", "val@64"} and np.array_equal(found["val"], rows(np.arange(40.0)))
    assert npz(found) == path.read_bytes(), "the same items give the same bytes"
    content = path.read_bytes()
    for damaged in (b"", content[:100], b"no zip", content[:-30]):
        path.write_bytes(damaged)
        assert read_items(path) == {}
    assert read_items(tmp_path / "nothing") == {}


def test_seeds_that_were_evaluated_on_other_items_have_no_mean() -> None:
    one_seed, other = {"val": rows(np.arange(40.0))}, {"val": rows(np.arange(40.0), tokens=999)}
    assert np.array_equal(mean_items([one_seed, one_seed])["val"], one_seed["val"])
    assert mean_items([one_seed, other]) == {} == mean_items([one_seed, {}]) == mean_items([])


def test_a_published_study_says_the_same_of_other_text_as_its_store(tmp_path: Path) -> None:
    store = Store(tmp_path, {"b": [], "a": []}, "b", ["val/loss"], range(5))
    store.claims = [{"text": "worse", "worse": {"arm": "a", "than": "b", "metric": "val/loss", "margin": 0.1}}]
    store.manifest = {"shared_config": {"task": {"source": {}}}}
    draw = np.random.default_rng(6)
    for arm, mean in (("b", 2.0), ("a", 2.3)):
        for seed in store.seeds:
            evaluation = {"val": {"items": 40, "hash": "0"}}
            folder = store.write_trial(arm, seed, {"val/loss": mean + draw.normal(0, 0.001)}, evaluation=evaluation)
            write_items(folder / "items.npz", {"val": rows(mean + np.linspace(-1, 1, 40))})
    store.write_manifest()
    made = build(store.study, store.runs, publish_to=tmp_path / "published")
    assert made.verdicts[0].elsewhere == "on other text too"
    assert "on other text too" in (tmp_path / "published" / "table.md").read_text()
    asked = replace(made.records.manifest, cells=(), ledger=Ledger())
    (again,) = rebuild(read_results(tmp_path / "published" / "results.csv", asked), tmp_path).verdicts
    assert again == made.verdicts[0]
    (tmp_path / "published" / "items.npz").unlink()
    (unknown,) = rebuild(read_results(tmp_path / "published" / "results.csv", asked), tmp_path).verdicts
    assert unknown.elsewhere == "" and unknown.outcome == again.outcome

    def problem() -> str:
        (said,) = build(store.study, store.runs, draw=False).records.problems
        return said

    file = store.directory("a", 3) / "items.npz"
    write_items(file, {"val": rows(np.arange(50.0))})
    assert problem().startswith("the trials of a were not evaluated on the same items, so whether verdicts on it hold")
    file.write_bytes(file.read_bytes()[:-30])
    assert problem().startswith("1 of 5 trials of a have no sums over items, or a damaged items.npz, so whether")


def test_neighbours_that_are_alike_make_the_error_over_items_larger() -> None:
    """Items of one stretch of text: eight blocks of four that say the same have the error of eight items."""
    blocks = np.random.default_rng(1).normal(2, 0.3, 8)
    alike, mixed = np.repeat(blocks, 4), np.tile(blocks, 4)
    ones = np.ones(32)

    def table(nats: np.ndarray) -> np.ndarray:
        return np.stack([nats, ones, ones, ones, ones, ones], axis=1)

    found = {
        name: item_error([Term(1.0, "a", "val/loss")], kept({"a": [1.0, 1.1]}, {"a": table(nats)}))  # type: ignore[arg-type]
        for name, nats in (("alike", alike), ("mixed", mixed))
    }
    assert found["alike"] is not None and found["mixed"] is not None
    assert found["alike"] == (pytest.approx(blocks.std(ddof=1) / math.sqrt(8)), 8)
    slightly = np.random.default_rng(0).normal(2, 0.3, 32)
    merged = slightly.reshape(8, 4).mean(axis=1).std(ddof=1) / math.sqrt(8)
    own = slightly.std(ddof=1) / math.sqrt(32)
    assert own < merged < math.sqrt(2) * own, "a little larger by chance counts too"
    few = item_error([Term(1.0, "a", "val/loss")], kept({"a": [1.0, 1.1]}, {"a": table(slightly)}))  # type: ignore[arg-type]
    assert few == (pytest.approx(merged), 8)
    assert found["mixed"] == (pytest.approx(mixed.std(ddof=1) / math.sqrt(32)), 32)
