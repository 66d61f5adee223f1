"""Looks at a study: which are recorded, what each one costs, and what damaged ledgers and removed seeds lead to."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from report.store import Store
from study import fakes
from study.test_looks_and_grids import answered, plan, worse
from swapformer.errors import UsageError
from swapformer.report.build import Report, build
from swapformer.report.results_csv import read_results
from swapformer.report.statistics.claim_grammar import claims_of
from swapformer.report.statistics.claim_identity import digest_of_all
from swapformer.report.statistics.evidence import gather
from swapformer.report.statistics.kept_looks import require_seeds
from swapformer.report.statistics.look_path import LookPath, next_error
from swapformer.report.statistics.verdicts import judge
from swapformer.results.manifest import Manifest, read_manifest, update_ledger

BORDER = 0.1
NOISE = np.random.default_rng(6).normal(0, 0.05, 20)
EVEN = 0.05 * (-1.0) ** np.arange(20)  # a mean near zero after any number of seeds


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """One arm that is clearly worse, and one whose difference is exactly its margin."""
    made = Store(tmp_path, {"b": [], "clear": [], "near": []}, "b", ["val/loss"], seeds=range(8))
    made.claims = [
        {"text": arm, "worse": {"arm": arm, "than": "b", "metric": "val/loss", "margin": BORDER}}
        for arm in ("clear", "near")
    ]
    return made


def judged(store: Store, seeds: Sequence[int], stated: int | Sequence[int], draw: bool = False) -> Report:
    """The report, drawn or not, once trials of `seeds` have ended, in a study that states `stated`."""
    for seed in seeds:
        for arm, value in (("b", 1.0), ("clear", 3.0 + NOISE[seed]), ("near", 1.0 + BORDER + EVEN[seed])):
            store.write_trial(arm, seed, {"val/loss": value})
    restate(store, stated)
    return build(store.study, store.runs, draw=draw)


def restate(store: Store, stated: int | Sequence[int]) -> None:
    """The manifest of a study that states these seeds, as `swapformer study` writes it: the ledger is kept."""
    path = store.study / "manifest.json"
    ledger = {"ledger": json.loads(path.read_text())["ledger"]} if path.is_file() else {}
    store.seeds = range(stated) if isinstance(stated, int) else stated
    store.manifest = {"ledger": {"series": [], "unknown": "", "check": CHECK}} | ledger
    store.write_manifest()


CHECK = Manifest("", "", {}, (), (), ()).ledger.to_json()["check"]


def errors(store: Store) -> list[list[float]]:
    """The errors of all looks in the ledger, series by series."""
    return [[look.error for look in series.looks] for series in read_manifest(store.study).ledger.series]


def test_the_seeds_that_a_study_states_are_one_look_with_four_fifths_of_the_error(store: Store) -> None:
    report = judged(store, range(8), 8)
    assert errors(store) == [[0.04]]
    assert report.verdicts[0].look is None and not any("Judged at" in text for text in report.as_dict()["design"])


def test_the_seeds_that_would_decide_are_told_at_the_error_of_the_next_look(store: Store) -> None:
    judged(store, range(8), 8)
    for seed in range(8):
        store.write_trial("near", seed, {"val/loss": 1.02 + BORDER + EVEN[seed]})
    report = build(store.study, store.runs)
    near, claims = report.verdicts[1], claims_of(report.records.manifest)
    (at_the_third,) = judge(claims[1:], gather(report.records), 0.0025)  # other values were a second look
    (at_four,) = judge(claims[1:], gather(report.records), 0.04)
    assert near.outcome == "undecided" and near.needed is not None and at_four.needed is not None
    assert near.needed == at_the_third.needed and near.needed.low > at_four.needed.low


def test_a_report_drawn_again_from_the_same_seeds_is_no_look(store: Store) -> None:
    judged(store, range(8), 8)
    before = (store.study / "manifest.json").read_bytes()
    again = build(store.study, store.runs)
    assert (store.study / "manifest.json").read_bytes() == before
    assert again.verdicts[1].level == pytest.approx(0.04)


def test_a_look_at_fewer_seeds_spends_half_of_what_is_left(store: Store) -> None:
    for ended in (3, 5, 8):
        report = judged(store, range(ended), 8)
    assert errors(store) == [[0.02, 0.01, 0.01]]
    (said,) = [text for text in report.as_dict()["design"] if text.startswith("Judged at")]
    assert said == "Judged at 3, 5 and 8 seeds, with 2 %, 1 % and 1 % of error; in all 4 %."


def test_seeds_that_are_added_after_the_error_is_spent_take_what_was_kept_back(store: Store) -> None:
    """The way that the README advised: 5 seeds, a look, then more."""
    for stated in (5, 8, 12):
        report = judged(store, range(stated), stated)
    assert errors(store) == [[0.04, 0.005, 0.0025]]
    assert any("in all 4.75 %." in text for text in report.as_dict()["design"])
    assert report.verdicts[1].look == 12 and report.verdicts[1].level == pytest.approx(0.0025)


def test_a_decided_claim_keeps_its_verdict_and_leaves_the_error_to_the_others(store: Store) -> None:
    judged(store, range(5), 5)
    for seed in range(5, 8):
        store.write_trial("clear", seed, {"val/loss": -9.0})
        store.write_trial("b", seed, {"val/loss": 1.0})
        store.write_trial("near", seed, {"val/loss": 1.0 + BORDER + EVEN[seed]})
    restate(store, 8)
    clear, near = build(store.study, store.runs).verdicts
    assert (clear.outcome, clear.look, clear.pairs) == ("supported", 5, 5)
    assert (near.outcome, near.look, near.level) == ("undecided", 8, pytest.approx(0.005))


def test_a_seed_counts_only_once_all_of_its_trials_have_ended(store: Store) -> None:
    judged(store, range(4), 8)
    store.write_trial("clear", 4, {"val/loss": 3.0})
    report = build(store.study, store.runs)
    assert errors(store) == [[0.02]] and report.verdicts[0].pairs == 4


def test_trials_whose_settings_are_still_to_be_chosen_are_waited_for(store: Store) -> None:
    """The manifest names no trial of theirs yet; to leave them out would be a look at some arms only."""
    judged(store, range(3), 3)
    cells = [{"arm": arm, "seed": seed, "trial": store.trial(arm, seed)} for arm in store.arms for seed in range(3)]
    shutil.rmtree(store.runs)
    for cell in cells:
        store.write_trial(cell["arm"], cell["seed"], {"val/loss": 1.0 + NOISE[cell["seed"]]})
    store.manifest = {"cells": [cell for cell in cells if (cell["arm"], cell["seed"]) != ("near", 2)]}
    store.write_manifest()
    build(store.study, store.runs)
    assert [len(look.trials) for series in read_manifest(store.study).ledger.series for look in series.looks] == [2]


def test_one_seed_is_no_look(store: Store) -> None:
    judged(store, range(1), 8)
    assert errors(store) == []


@pytest.mark.parametrize("change", [{"margin": 0.2}, {"margin": BORDER + 1e-8}, {"metric": "val/perplexity"}])
def test_other_claims_about_judged_trials_are_the_next_look_and_judged_by_it_alone(
    store: Store, change: dict[str, Any]
) -> None:
    judged(store, range(5), 5)
    store.metrics, before = ["val/loss", "val/perplexity"], store.claims
    store.claims = [{"text": "other", "worse": {**store.claims[0]["worse"], **change}}]
    (other,) = judged(store, range(5), 5).verdicts
    assert errors(store) == [[0.04, 0.005]] and other.level == pytest.approx(0.005)
    (other,) = judged(store, range(8), 8).verdicts
    assert errors(store) == [[0.04, 0.005, 0.0025]]
    store.claims = before
    near = judged(store, range(8), 8).verdicts[1]
    assert errors(store) == [[0.04, 0.005, 0.0025, 0.00125]] and near.level == pytest.approx(0.00125)


def test_claims_that_are_added_or_dropped_are_the_next_look_too(store: Store) -> None:
    both = store.claims
    store.claims = both[:1]
    judged(store, range(5), 5)
    store.claims = both
    judged(store, range(5), 5)
    assert errors(store) == [[0.04, 0.005]]


def test_a_decided_claim_keeps_its_verdict_when_others_are_added_or_taken_out(store: Store) -> None:
    clear, near = store.claims
    store.claims = [clear]
    judged(store, range(5), 5)
    for added in range(1, 4):
        store.claims = [
            clear,
            *({**near, "worse": {**near["worse"], "margin": BORDER + k / 1e3}} for k in range(added)),
        ]
        first, *others = judged(store, range(5), 5).verdicts
        assert (first.outcome, first.level) == ("supported", pytest.approx(0.04))
        assert len(errors(store)[0]) == 1 + added
        error = 0.005 / 2 ** (added - 1)
        assert others[-1].level == pytest.approx(error), "the new one, judged at a look of its own"
    store.claims = [clear]
    (first,) = judged(store, range(5), 5).verdicts
    assert (first.outcome, first.level, len(errors(store)[0])) == ("supported", pytest.approx(0.04), 4), "no look more"


def test_a_claim_that_is_taken_out_leaves_the_others_no_more_error(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else one would state many claims, and drop those that do not come true."""
    _, near = store.claims
    store.claims = [near, *({**near, "worse": {**near["worse"], "margin": BORDER + k / 1e3}} for k in (1, 2))]
    assert [each.level for each in judged(store, range(5), 5).verdicts] == pytest.approx([0.04 / 3] * 3)
    store.claims = [near]
    assert [each.level for each in judged(store, range(5), 5).verdicts] == pytest.approx([0.04 / 3])
    assert errors(store) == [[0.04]]
    monkeypatch.setattr(LookPath, "gone", property(lambda path: (0,) * len(path.looks)))
    assert [each.level for each in judged(store, range(5), 5).verdicts] == pytest.approx([0.04]), "the planted fault"


def test_looks_of_before_claims_had_digests_of_their_own_are_read(store: Store) -> None:
    judged(store, range(5), 5)
    path = store.study / "manifest.json"
    ledger = read_manifest(store.study).ledger
    old = [
        replace(look, claims=digest_of_all(claims_of(read_manifest(store.study)))) for look in ledger.series[0].looks
    ]
    raw = json.loads(path.read_text())
    raw["ledger"] = replace(ledger, series=(replace(ledger.series[0], looks=tuple(old)),)).to_json()
    path.write_text(json.dumps(raw))
    assert [each.level for each in judged(store, range(5), 5).verdicts] == pytest.approx([0.02, 0.04])
    assert errors(store) == [[0.04]]


def test_another_wording_or_order_is_the_same_study(store: Store) -> None:
    judged(store, range(5), 5)
    store.claims = [{**claim, "text": claim["text"] + "!"} for claim in reversed(store.claims)]
    store.claims[0]["worse"] = {**store.claims[0]["worse"], "than": ["b"]}
    judged(store, range(5), 5)
    assert errors(store) == [[0.04]]
    judged(store, range(8), 8)
    assert errors(store) == [[0.04, 0.005]]


def test_trials_remember_the_looks_of_a_study_whose_folder_is_deleted(store: Store) -> None:
    """Without them, the same trials would be judged with all of the error again and again."""
    for stated in (5, 8):
        judged(store, range(stated), stated)
    forget(store)
    judged(store, range(12), 12)
    assert errors(store) == [[0.04, 0.005, 0.0025]]
    for path in (store.runs / "trials").glob("*/judged.json"):
        path.write_text("[{}, 3, {")
    forget(store)
    judged(store, range(12), 12)
    assert errors(store) == [[0.04]], "the planted fault: nothing remembers"


def test_remembered_looks_at_the_same_error_stay_apart(store: Store) -> None:
    """Half of what is left, and the rest: both looks take 1 %, and both are spent."""
    for ended in (3, 5, 8):
        judged(store, range(ended), 8)
    forget(store)
    judged(store, range(12), 12)
    assert errors(store) == [[0.02, 0.01, 0.01, 0.005]]


def forget(store: Store) -> None:
    """Deletes the study's folder; its trials stay."""
    shutil.rmtree(store.study)


def test_trials_of_other_configurations_are_a_new_study(store: Store) -> None:
    judged(store, range(5), 5)
    path = store.study / "manifest.json"
    path.write_text(path.read_text().replace('"trial": "0000000', '"trial": "f000000'))
    manifest = json.loads(path.read_text())
    for cell in manifest["cells"]:
        shutil.copytree(store.directory(cell["arm"], cell["seed"]), store.runs / "trials" / cell["trial"])
        record = store.runs / "trials" / cell["trial"] / "record.json"
        record.write_text(json.dumps({**json.loads(record.read_text()), "id": cell["trial"]}))
    build(store.study, store.runs)
    assert errors(store) == [[0.04], [0.04]]


def test_trials_that_ran_elsewhere_are_the_next_look(store: Store) -> None:
    judged(store, range(5), 5)
    for seed in range(5):
        for arm in store.arms:
            store.write_trial(arm, seed, {"val/loss": 1.0 + NOISE[seed]}, environment={"device": "cuda"})
    build(store.study, store.runs)
    assert errors(store) == [[0.04, 0.005]]


def test_two_processes_that_judge_at_once_lose_no_look(tmp_path: Path, store: Store) -> None:
    judged(store, range(2), 8)

    def add(number: int) -> None:
        update_ledger(store.study, lambda ledger: ledger.add((), None, frozenset({str(number)})))

    with ThreadPoolExecutor(16) as pool:
        list(pool.map(add, range(64)))
    ledger = read_manifest(store.study).ledger
    assert len(ledger.series) == 1 + 64 and ledger.unknown == ""


class TestDamagedLedgers:
    @staticmethod
    def says(report: Report, reason: str) -> None:
        (caveat,) = [text for text in report.caveats if text.startswith("Looks before are unknown")]
        assert reason in caveat

    def test_one_that_was_deleted_is_said_to_be_unknown(self, store: Store) -> None:
        judged(store, range(5), 5, draw=True)
        path = store.study / "manifest.json"
        content = json.loads(path.read_text())
        del content["ledger"]
        path.write_text(json.dumps(content))
        self.says(build(store.study, store.runs), "before looks were counted")
        assert ",look@unknown," in (store.study / "report" / "results.csv").read_text()
        assert read_manifest(store.study).ledger.unknown, "it stays unknown"

    def test_one_that_was_cut_is_said_to_be_unknown(self, store: Store) -> None:
        judged(store, range(3), 5)
        judged(store, range(5), 5)
        path = store.study / "manifest.json"
        content = json.loads(path.read_text())
        del content["ledger"]["series"][0]["looks"][1]
        path.write_text(json.dumps(content))
        self.says(build(store.study, store.runs), "cut or edited")

    def test_a_study_whose_manifest_is_gone_or_damaged_says_so_when_it_runs_again(self, tmp_path: Path) -> None:
        planned = plan(tmp_path, claims=[worse("h4", 0.0)], seeds=3)
        folder = tmp_path / "runs" / "studies" / "crossed"
        answered(planned, tmp_path)
        (folder / "manifest.json").unlink()
        self.says(answered(planned, tmp_path).report, "manifest.json is gone")
        (folder / "manifest.json").write_text('{"schema_version": 1, "na')
        self.says(answered(planned, tmp_path).report, "could not be read")
        assert (folder / "manifest.json.corrupt-1").is_file(), "nothing is lost"


def test_seeds_that_are_left_out_after_a_look_are_refused_in_one_line(tmp_path: Path) -> None:
    claims = [worse("h4", 0.0)]
    answered(plan(tmp_path, claims=claims, seeds=6), tmp_path)
    path = tmp_path / "runs" / "studies" / "crossed" / "manifest.json"
    before, trained = path.read_bytes(), fakes.runs(tmp_path / "journal")
    for fewer in (4, [7, 8, 9]):
        with pytest.raises(
            UsageError, match="all 6 seeds that crossed was judged with must stay, but it leaves out"
        ) as no:
            answered(plan(tmp_path, claims=claims, seeds=fewer), tmp_path)
        assert "\n" not in str(no.value) and len(str(no.value)) <= 300
        assert path.read_bytes() == before and fakes.runs(tmp_path / "journal") == trained, "nothing was done"
    with pytest.raises(UsageError, match="all 6 seeds that"):
        answered(plan(tmp_path, claims=[worse("h4", 0.1)], seeds=4), tmp_path)  # whatever is claimed
    more = answered(plan(tmp_path, claims=claims, seeds=8), tmp_path)
    assert more.report.records.manifest.ledger.series[0].seeds == tuple(range(8))


def test_a_study_whose_settings_are_still_to_be_chosen_leaves_out_no_seeds(tmp_path: Path) -> None:
    """Before it has chosen, nothing says that it is the study of before."""
    claims = [worse("h4", 0.0)]
    found = answered(plan(tmp_path, claims=claims, seeds=4), tmp_path).report.records.manifest
    folder = tmp_path / "runs" / "studies" / "crossed"
    other = replace(found, seeds=(7, 8), cells=())
    with pytest.raises(UsageError, match="must stay"):
        require_seeds(folder, other)
    require_seeds(folder, replace(other, settings={}))


def test_other_seeds_at_another_budget_are_another_study_and_neither_forgets_its_looks(tmp_path: Path) -> None:
    """No seed and no trial is shared, so the trials alone would not tell the studies apart."""
    claims, other = [worse("h4", 0.0)], {"overrides": ["spread=1"]}
    answered(plan(tmp_path, claims=claims, seeds=4), tmp_path)
    found = answered(plan(tmp_path, claims=claims, seeds=[7, 8, 9], **other), tmp_path)
    assert [series.seeds for series in found.report.records.manifest.ledger.series] == [(0, 1, 2, 3), (7, 8, 9)]
    with pytest.raises(UsageError, match=r"all 4 seeds .* it leaves out the seeds 0, 1, 2, 3; state them too"):
        answered(plan(tmp_path, claims=claims, seeds=[7, 8, 9]), tmp_path)
    with pytest.raises(UsageError, match=r"all 3 seeds .* it leaves out seed 9; state it too"):
        answered(plan(tmp_path, claims=claims, seeds=[7, 8], **other), tmp_path)
    more = answered(plan(tmp_path, claims=claims, seeds=5), tmp_path)
    looks = [[look.error for look in series.looks] for series in more.report.records.manifest.ledger.series]
    assert looks == [[0.04, 0.005], [0.04]]


def test_the_looks_of_a_study_are_judged_again_from_its_results_alone(store: Store) -> None:
    for stated in (5, 8):
        first = judged(store, range(stated), stated, draw=True)
    results = store.study / "report" / "results.csv"
    rows = [line for line in results.read_text().splitlines() if ",look@" in line]
    assert [row.split(",")[2:5] for row in rows] == (
        [[str(seed), "look@5", "0.04"] for seed in range(5)] + [[str(seed), "look@8", "0.005"] for seed in range(5, 8)]
    )
    asked = replace(first.records.manifest, cells=(), seeds=(), ledger=Manifest("", "", {}, (), (), ()).ledger)
    same_verdicts(read_results(results, asked), first)


def same_verdicts(records: Any, first: Report) -> None:
    from swapformer.report.statistics.claim_grammar import parse
    from swapformer.report.statistics.sequential import judge_all

    manifest = records.manifest
    again = judge_all(parse(manifest.claims, tuple(manifest.arms), manifest.metrics), records)[""]
    assert [(v.outcome, v.look, v.level, v.p_adjusted) for v in again] == [
        (v.outcome, v.look, v.level, v.p_adjusted) for v in first.verdicts
    ]


@pytest.mark.parametrize(
    ("spent", "stated", "declared", "expected"),
    [
        ([], True, 0, 0.04),
        ([], False, 0, 0.02),
        ([0.02], True, 0, 0.02),
        ([0.04 / 3], True, 3, 0.04 / 3),
        ([0.025], True, 3, 0.04 / 3),
        ([0.04], True, 0, 0.005),
        ([0.05], True, 0, 0.005),  # of before a part was kept back
        ([0.04, 0.005], False, 0, 0.0025),
        ([0.02, 0.01, 0.01, 0.005], True, 0, 0.0025),
    ],
)
def test_the_error_of_a_look_follows_what_was_spent(
    spent: list[float], stated: bool, declared: int, expected: float
) -> None:
    assert next_error(spent, stated, declared) == pytest.approx(expected)


def path_error(counts: Sequence[int], error: Callable[[int], float]) -> float:
    """How often a claim at its margin is decided at any of several looks, over 20 000 studies of normal differences."""
    from scipy import stats

    samples = np.random.default_rng(3).normal(0, 1, (20_000, counts[-1]))
    wrong = np.zeros(len(samples), dtype=bool)
    for k, n in enumerate(counts):
        t = samples[:, :n].mean(axis=1) / (samples[:, :n].std(axis=1, ddof=1) / math.sqrt(n))
        wrong |= np.abs(t) > stats.t.isf(error(k) / 2, n - 1)
    return float(wrong.mean())


def test_paths_of_looks_err_as_the_page_says_and_looks_that_nobody_counts_err_more() -> None:
    """5 % at every n from 3 to 20 gives .23 (simulated here); what each look may spend stays below 5 % in all."""
    counts = range(3, 21)
    spent: list[float] = []
    for _ in counts:
        spent.append(next_error(spent, all_stated=True))
    assert sum(spent) <= 0.05
    assert path_error(counts, lambda k: 0.05) == pytest.approx(0.23, abs=0.01)
    assert path_error(counts, lambda k: spent[k]) <= 0.05
