"""What the page says about tuning, matching, grids and what else differs; escaped like all the rest."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console
from scipy import linalg

from report.store import Store
from report.test_build import Tags
from swapformer.report.build import Report, build
from swapformer.report.page import template, wording
from swapformer.report.statistics.power import SeedRange
from swapformer.results.arms import arm_name

SETTINGS = ("1e-3", "3e-3", "1e-2")
SIZES = ("nano", "micro")


def entry(arm: str, condition: str, **changes: Any) -> dict[str, Any]:
    plain = {"arm": arm, "condition": condition, "changes": [], "beyond": [], "shapes": [], "flops": 1.23e12}
    return {**plain, "match": None, **changes}


def write(store: Store) -> None:
    """Two conditions with trials of their own, and tuning trials that lie in the store beside them."""
    generator = np.random.default_rng(9)
    cells, tried = [], []
    for where, size in enumerate(SIZES):
        for index, arm in enumerate(store.arms):
            for seed in store.seeds:
                store_seed = 100 * (where + 1) + seed
                loss = 2.0 - 0.3 * index * (1 - 2 * where) + generator.normal(0, 0.02)
                store.write_trial(arm, seed, {"val/loss": loss}, place=store_seed)
                cells.append({"arm": arm, "condition": f"model/size={size}", "seed": seed,
                              "trial": store.trial(arm, store_seed)})  # fmt: skip
            for place, rate in enumerate(SETTINGS):
                ids = []
                for seed in (1_000_000, 1_000_001):
                    name = 10_000 * (where + 1) + 10 * place + seed % 10
                    lost = arm == "<b>" and rate == "1e-2"
                    store.write_trial(arm, seed, {} if lost else {"val/loss": 3.0 - 0.1 * place + 0.01 * (seed % 10)},
                                      "diverged" if lost else "finished", place=name)  # fmt: skip
                    ids.append(store.trial(arm, name))
                tried.append({"arm": arm, "condition": f"model/size={size}", "values": {"optim.lr": rate},
                              "trials": ids})  # fmt: skip
    chosen = [
        {"arm": arm, "condition": f"model/size={size}", "values": {"optim.lr": "3e-3" if arm == "<b>" else "1e-2"},
         "edges": [] if arm == "<b>" else ["optim.lr"]}
        for size in SIZES for arm in store.arms
    ]  # fmt: skip
    match = {"measure": "params", "key": "model.ffn.width", "value": 171, "cost": 50123, "target": 50000}
    store.manifest = {
        "conditions": {f"model/size={size}": {"model/size": size} for size in SIZES},
        "cells": cells,
        "tuning": {"metric": "val/loss", "keys": ["optim.lr"], "seeds": [1_000_000, 1_000_001], "tried": tried,
                   "chosen": chosen, "refused": []},
        "fairness": [
            entry(arm, f"model/size={size}", **({} if arm == "a" else {
                "changes": [["model.ffn._target_", "MLP", "GLU"], ["model.bias", "true", "<i>"]],
                "beyond": ["model.bias"], "shapes": [["layers.*.up.weight", [64, 256], [64, 171], 2]], "match": match,
            })) for size in SIZES for arm in store.arms
        ],
    }  # fmt: skip
    store.write_manifest()


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Report:
    claim = {"text": "b is better", "better": {"arm": "<b>", "than": "a", "metric": "val/loss", "margin": 0.0}}
    store = Store(tmp_path_factory.mktemp("fair"), {"a": [], "<b>": ["model/ffn=glu"]}, "a", ["val/loss"],
                  seeds=range(6), claims=[claim])  # fmt: skip
    write(store)
    return build(store.study, store.runs)


@pytest.fixture(scope="module")
def text(report: Report) -> str:
    tags = Tags()
    tags.feed((report.directory / "report.html").read_text(encoding="utf-8"))
    assert "i" not in {tag for tag, _ in tags.tags}, "what users wrote is escaped"
    ids = [attrs["id"] for _, attrs in tags.tags if "id" in attrs]
    assert len(ids) == len(set(ids)), "figures of several conditions share no id"
    return " ".join(tags.text.split())


def test_the_page_shows_what_was_tried_and_chosen(text: str) -> None:
    assert "1e-3: 3.0050 · 3e-3: 2.9050 · 1e-2: 2 diverged" in text
    assert "1e-3: 3.0050 · 3e-3: 2.9050 · 1e-2: 2.8050" in text and "at the edge" in text
    assert "optim.lr was chosen for each arm by the mean of val/loss over seeds that are not reported" in text


def test_what_stands_between_backticks_is_code_on_the_page(report: Report) -> None:
    assert any("widen the grid of `tune`" in caveat for caveat in report.caveats), "as the terminal shows it"
    whole = (report.directory / "report.html").read_text(encoding="utf-8")
    assert "widen the grid of <code>tune</code>" in whole
    assert "`" not in re.sub(r"<script.*?</script>", "", whole, flags=re.DOTALL)
    assert template.prose("`<b>` is <i>, `a") == "<code>&lt;b&gt;</code> is &lt;i&gt;, `a"


def test_the_page_shows_what_a_match_left(text: str) -> None:
    assert "model.ffn.width=171" in text and "+0.25 %" in text and "50 123" in text


def test_the_page_shows_what_differs_and_flags_what_is_more(text: str) -> None:
    assert "2 settings, 1 shape more than its axis" in text
    assert "model.bias beyond its axis" in text and "<i>" in text and "model.ffn._target_MLPGLU" in text
    assert "layers.*.up.weight 2 times64 × 25664 × 171" in text and "1.23 T" in text


def test_what_is_more_than_the_axis_comes_with_advice(report: Report) -> None:
    """One caveat for all conditions that it is true in, since they are of one kind."""
    both = "<b> with model/size=nano and <b> with model/size=micro"
    expected = "differ from a in more than their axis: model.bias; name what is compared on purpose with `axis: [...]`."
    assert [each for each in report.caveats if "axis:" in each] == [f"{both} {expected}"]


def test_settings_at_the_edge_are_one_caveat(report: Report) -> None:
    """Here a's in one condition and both arms' in the other, at the same value."""
    (said,) = (each for each in report.caveats if "the edge of what was tried" in each)
    tuning = report.records.manifest.tuning
    assert tuning is not None
    at_edges = {arm_name(each.arm, each.condition) for each in tuning.chosen for _ in each.edges}
    assert len(at_edges) > 1 and all(name in said for name in at_edges)


def test_an_arm_leads_to_its_trials_and_their_configurations(tmp_path: Path) -> None:
    """Every link of a trial leads to a file of the store; each arm of the table to the row of its trials."""
    store = Store(tmp_path, {"a": [], "<b>": ["model/ffn=glu"]}, "a", ["val/loss"], seeds=range(3))
    write(store)
    gone, *stored = sorted((store.runs / "trials").iterdir())
    for folder in stored:
        (folder / "config.yaml").write_text("seed: 0\n")
    tags = Tags()
    tags.feed((build(store.study, store.runs).directory / "report.html").read_text(encoding="utf-8"))
    links = [str(attrs["href"]) for tag, attrs in tags.tags if tag == "a" and "href" in attrs]
    rows = {attrs["id"] for _, attrs in tags.tags if str(attrs.get("id", "")).startswith("trials-")}
    assert {link[1:] for link in links if link.startswith("#trials")} == rows and len(rows) == 2 * len(SIZES)
    led = {(store.study / "report" / link).resolve() for link in links if link.endswith("/config.yaml")}
    assert led == {folder / "config.yaml" for folder in stored}
    assert gone.name[:8] in "".join(tags.text), "a trial that the store has lost keeps its name"


def test_trials_that_chose_settings_are_counted(report: Report, text: str) -> None:
    tuning = report.records.manifest.tuning
    assert tuning is not None
    tried = {trial for each in tuning.tried for trial in each.trials} - set(report.records.cells["trial"])
    assert len(tried) > 0 and f"{len(tried)} more to choose settings" in text


def test_the_page_says_whether_the_verdict_holds_everywhere(text: str, report: Report) -> None:
    assert "The verdict depends on the condition: supported with model/size=nano, refuted with model/size=micro" in text
    assert "model/size: micro − nano" in text
    assert report.as_dict()["everywhere"] == [{"text": "b is better", "outcome": "depends"}]


def sized(root: Path, arms: Sequence[str], claims: Sequence[Mapping[str, Any]] = ()) -> Store:
    """Arms under two conditions; the number of an arm is its loss."""
    store = Store(root, {arm: [] for arm in arms}, arms[0], ["val/loss"], seeds=range(4), claims=list(claims))
    cells = []
    for where, size in enumerate(SIZES, 1):
        for number, arm in enumerate(arms, 1):
            for seed in store.seeds:
                store.write_trial(
                    arm, seed, {"val/loss": number + 0.01 * (seed * number % 3)}, place=100 * where + seed
                )
                trial = store.trial(arm, 100 * where + seed)
                cells.append({"arm": arm, "condition": f"model/size={size}", "seed": seed, "trial": trial})
    store.manifest = {"conditions": {f"model/size={size}": {"model/size": size} for size in SIZES}, "cells": cells}
    store.write_manifest()
    return store


def test_figures_over_a_grid_stand_on_the_page_and_in_the_paper_without_an_arm_to_compare(tmp_path: Path) -> None:
    store = sized(tmp_path, ["only"])
    report = build(store.study, store.runs, paper=("png",))
    assert 'data-name="grid_val_loss"' in (report.directory / "report.html").read_text(encoding="utf-8")
    assert {"grid_val_loss.png", "grid_val_loss.csv"} <= {path.name for path in (report.directory / "paper").iterdir()}


def test_margins_in_a_forest_are_those_of_claims_about_the_baseline_in_that_condition(tmp_path: Path) -> None:
    of_base = {"text": "1", "within": {"arm": "x", "of": "base", "metric": "val/loss", "margin": 0.125}}
    of_x = {"text": "2", "within": {"arm": "y", "of": "x", "metric": "val/loss", "relative": 0.1}}
    far = {"text": "3", "within": {"arm": "x", "of": "base", "metric": "val/loss", "margin": 99}}
    at = {"at": {"model/size": "nano"}}
    store = sized(tmp_path, ["base", "x", "y"], [of_base | at, of_x, far | at])
    found = {
        view.condition: figure.caption
        for view in build(store.study, store.runs).views
        for figure in view.figures
        if figure.name.endswith("forest_val_loss")
    }
    assert (
        "margins of the claims: ±0.125. Margins of claims that lie outside the picture: ±99."
        in found["model/size=nano"]
    )
    assert "argins" not in found["model/size=micro"]


def test_the_json_holds_all_of_it(report: Report) -> None:
    plain = json.loads(json.dumps(report.as_dict(), allow_nan=False))
    assert plain["tuning"][0]["chosen"] == {"optim.lr": "1e-2"} and plain["tuning"][0]["edges"] == ["optim.lr"]
    assert plain["fairness"][1]["mismatch"] == pytest.approx(0.00246)
    assert {verdict["condition"] for verdict in plain["verdicts"]} == {"model/size=nano", "model/size=micro"}


def hardly_correlated(root: Path) -> Report:
    """Four arms whose seeds hardly correlate, and a claim against all others."""
    claims = [{"text": "best", "better": {"arm": "d", "than": ["a", "b", "c"], "metric": "val/loss", "margin": 0.1}}]
    store = Store(root, dict.fromkeys("abcd", ()), "a", ["val/loss"], range(8), claims)
    noise = 0.05 * linalg.hadamard(8)[1:5]  # rows that do not correlate at all
    store.write(lambda arm, seed: {"val/loss": 1 + noise["abcd".index(arm), seed]})
    return build(store.study, store.runs)


def test_the_page_explains_an_interval_that_is_not_symmetric(tmp_path: Path) -> None:
    report = hardly_correlated(tmp_path / "several")
    said = (
        "the upper end of each interval errs with 4 %; the lower end can only refute, as any of 3 may, and errs with "
        "1.33 %"
    )
    page = (report.directory / "report.html").read_text()
    sure = (
        "For roughly normal seeds the chance that this verdict is wrong would be at most 4 %. Here it may be larger: "
        "seeds of d fall into two groups; seeds of a fall into two groups, and 2 more."
    )
    assert said in page and sure in page
    text = io.StringIO()
    report.render(Console(file=text, width=300))
    assert sure in text.getvalue() and said not in text.getvalue(), "one line for the whole study"
    assert report.as_dict()["verdicts"][0]["differences"][0]["errors"] == pytest.approx([0.04 / 3, 0.04])


@pytest.mark.parametrize(
    ("needed", "text"),
    [
        (SeedRange(9, 21), "roughly 9 to 21 seeds would decide"),
        (SeedRange(9, 9), "roughly 9 seeds would decide"),
        (SeedRange(9, None), "9 or many more seeds would decide"),
        (SeedRange(None, None), "more than 1000 seeds would be needed"),
    ],
)
def test_the_seeds_that_would_decide_in_words(needed: SeedRange, text: str) -> None:
    assert wording.seeds_text(needed) == text


def test_no_interval_has_a_width_of_zero(tmp_path: Path) -> None:
    """Equal values with every seed: of accuracies, .025^(1/8) = 63 % of seeds are shown to be alike; of losses none."""
    store = Store(tmp_path, {"a": [], "b": []}, "a", ["val/loss", "val/accuracy"], range(8))
    store.write(lambda arm, seed: {"val/loss": 2.0, "val/accuracy": 1.0})
    report = build(store.study, store.runs)
    table = (report.directory / "table.md").read_text()
    assert "| **a** (baseline) | 8 | 2.00 – | 1.00 [0.63, 1.00] |" in table
    assert "Where all seeds agree on a value in [0, 1]" in table


def looking(root: Path, **more: Any) -> Report:
    """A sequential study with two claims, the first of which is decided at its first look."""
    claims = [
        {"text": arm, "worse": {"arm": arm, "than": "a", "metric": "val/loss", "margin": 0.1}} for arm in ("b", "c")
    ]
    store = Store(root, {"a": [], "b": [], "c": []}, "a", ["val/loss"], range(8), claims)
    store.manifest = {"looks": [4, 8], **more}
    noise = np.random.default_rng(1).normal(0, 0.05, (2, 8))
    store.write(lambda arm, seed: {"val/loss": {"a": 1.0, "b": 3 + noise[0, seed], "c": 1.1 + noise[1, seed]}[arm]})
    return build(store.study, store.runs)


def test_the_terminal_says_at_how_many_seeds_a_verdict_was_given(tmp_path: Path) -> None:
    text = io.StringIO()
    looking(tmp_path).render(Console(file=text, width=400))
    assert "more than 0.1), at 4 seeds" in text.getvalue() and "Judged at 2 looks (2 % and 2 %)" in text.getvalue()


def test_what_records_note_is_a_caveat(tmp_path: Path) -> None:
    """Each note once, with the arms that it is about; how an attempt ended that was resumed is no caveat."""
    store = Store(tmp_path, {"a": [], "b": []}, "a", ["val/loss"], range(2))
    resumed, cut = "attempt 1 killed: no process holds it", "MoE took the loss over each of the 2 parts"
    for arm, seed, notes in (("a", 0, [resumed]), ("a", 1, [cut]), ("b", 0, [resumed, cut]), ("b", 1, ["x" * 1000])):
        store.write_trial(arm, seed, {"val/loss": 1.0 + seed}, notes=notes)
    store.write_manifest()
    noted = [caveat for caveat in build(store.study, store.runs).caveats if "oted in" in caveat]
    assert noted[0] == f"Noted in 2 trials of a and b: {cut}."
    assert noted[1].startswith("Noted in 1 trial of b: xxx") and len(noted) == 2 and len(noted[1]) < 400
    for seed in range(2):
        store.write_trial("b", seed, {"val/loss": 1.0}, notes=[f"{seed}, {n}" for n in range(9)])
    assert "9 more notes stand in the records of trials." in build(store.study, store.runs).caveats


def test_an_arm_without_a_metric_is_not_taken_for_one_of_few_seeds(tmp_path: Path) -> None:
    store = Store(tmp_path, {"a": [], "b": [], "c": []}, "a", ["val/loss", "val/accuracy"], range(8))
    store.write(lambda arm, seed: {"val/loss": 2.0 + seed * len(arm), **({} if arm == "c" else {"val/accuracy": 0.5})})
    assert not [each for each in build(store.study, store.runs).caveats if "fewer than 5 seeds" in each]


def test_few_seeds_and_values_that_are_missing_are_named_without_any_claim(tmp_path: Path) -> None:
    store = Store(tmp_path, {"a": [], "b": []}, "a", ["val/loss", "val/accuracy"], range(4))
    store.write(
        lambda arm, seed: {"val/loss": 2.0 + seed, **({"val/accuracy": 0.5} if (arm, seed) != ("b", 2) else {})}
    )
    caveats = build(store.study, store.runs).caveats
    assert any("fewer than 5 seeds" in each for each in caveats)
    assert any(each.startswith("b has no finite val/accuracy in 1 of its 4 finished trials") for each in caveats)


def test_a_metric_that_is_infinite_in_every_trial_of_an_arm_is_named_and_one_that_it_lacks_is_not(
    tmp_path: Path,
) -> None:
    store = Store(tmp_path, {"a": [], "b": []}, "a", ["val/loss", "val/perplexity", "probe/x"], range(5))
    store.directions = {"val/loss": "lower", "val/perplexity": "lower"}
    for seed in range(5):
        store.write_trial("a", seed, {"val/loss": 2.0 + seed, "val/perplexity": 8.0}, probes={"probe/x": 0.5})
        store.write_trial("b", seed, {"val/loss": 800.0 + seed})
    store.write_manifest()
    caveats = [each for each in build(store.study, store.runs).caveats if "no finite" in each]
    assert [each[:58] for each in caveats] == ["b has no finite val/perplexity in 5 of its 5 finished tria"]


def test_a_p_value_says_of_what_it_is(text: str, report: Report) -> None:
    """Of a claim that is refuted, or leans that way, it is that of the refutation."""
    said = re.findall(r"p (\S+ ?\S*) (for|against) the claim, corrected (\S+)", text)
    cards = [verdict for claim in report.claims for verdict in claim.verdicts.values() if verdict.contrasts]
    assert [side for _, side, _ in said] == ["for" if each.leans_true else "against" for each in cards]
    assert {each.outcome for each in cards if each.leans_true} <= {"supported", "undecided"}
    assert {each.outcome for each in cards if not each.leans_true} <= {"refuted", "undecided"}
    assert len({side for _, side, _ in said}) == 2, "both sides are there"
