"""Times to a target: a walk along the curve finds the same step, and what never got there is cut off, never averaged
as if it had."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from report.store import Store
from swapformer.errors import UsageError
from swapformer.report.build import Report, build
from swapformer.report.derive import parse_derive
from swapformer.report.results_csv import read_results
from swapformer.report.statistics.claim_grammar import claims_of
from swapformer.report.statistics.sequential import judge_all
from swapformer.report.target_times import TargetTime, cut_off, first_step, last_value


def curve(values: list[float], every: int = 10) -> pd.DataFrame:
    return pd.DataFrame({"step": every * np.arange(1, len(values) + 1), "value": values})


@pytest.mark.parametrize("higher", [False, True])
def test_a_walk_in_small_steps_reaches_the_target_at_the_same_step(higher: bool) -> None:
    """Oracle: a walk of a hundredth of a step along the straight lines between evaluations, until it is as good."""
    generator = np.random.default_rng(3)
    reached = 0
    for _ in range(30):
        values = list(generator.uniform(1, 3, 6))
        target = float(generator.uniform(1, 3))
        walk = np.arange(10, 60.005, 0.01)
        heights = np.interp(walk, 10 * np.arange(1, 7), values)
        good = walk[heights >= target if higher else heights <= target]
        found = first_step(curve(values), target, higher, interpolate=True)
        evaluated = first_step(curve(values), target, higher)
        if not len(good):
            assert found == evaluated == math.inf
            continue
        reached += 1
        assert found == pytest.approx(good[0], abs=0.02)
        assert evaluated == 10 * math.ceil((found - 1e-9) / 10)
    assert reached > 15


def test_an_evaluation_that_was_no_number_gives_no_line_and_no_target_no_time() -> None:
    assert first_step(curve([3.0, math.nan, 1.0]), 1.5, higher=False, interpolate=True) == 30
    assert math.isnan(first_step(curve([3.0, 1.0]), math.nan, higher=False))
    assert first_step(curve([]), 1.0, higher=False) == math.inf
    assert last_value(curve([3.0, 1.0, 2.0])) == 2.0 and math.isnan(last_value(curve([])))


def test_the_shortest_horizon_cuts_off_every_trial() -> None:
    """Cut off at its own horizon of 100, the trial that never got there would beat the one that did at 120."""
    values, cut = cut_off({"never": TargetTime(math.inf, 100.0), "late": TargetTime(120.0, 200.0),
                           "early": TargetTime(40.0, 150.0), "unknown": TargetTime(math.nan, 90.0)})  # fmt: skip
    assert values == {"never": 100.0, "late": 100.0, "early": 40.0, "unknown": pytest.approx(math.nan, nan_ok=True)}
    assert cut == {"never", "late"}


def test_no_time_is_told_in_a_unit_that_was_not_counted() -> None:
    """The tokens of a command that is not ours are 0 in its record, which is no time to a target."""
    values, cut = cut_off({"command": TargetTime(0.0, 0.0), "ours": TargetTime(40.0, 150.0)})
    assert math.isnan(values["command"]) and values["ours"] == 40.0 and not cut


def history(ends: float, every: int = 100) -> dict[str, list[tuple[int, float]]]:
    """A straight fall from 4 at the start to `ends` at step 2000."""
    return {"val/loss": [(step, 4 + (ends - 4) * step / 2000) for step in range(every, 2001, every)]}


def study(folder: Path, ends: dict[str, float], derive: dict[str, object], claims: list[dict[str, object]]) -> Report:
    store = Store(folder, {arm: [f"x={arm}"] for arm in ends}, next(iter(ends)), ["val/loss", *derive], seeds=range(5))
    store.claims = claims
    store.manifest = {"derive": derive}
    for index, (arm, end) in enumerate(ends.items()):
        for seed in store.seeds:
            own = end + 0.01 * ((seed * 3 + index) % 5)
            store.write_trial(arm, seed, {"val/loss": own}, history=history(own), seconds=100.0 * (index + 1) + seed)
    store.write_manifest()
    return build(store.study, store.runs)


def test_an_arm_is_timed_to_what_the_baseline_ends_at_with_the_same_seed(tmp_path: Path) -> None:
    """On straight lines from 4, an arm that ends at e reaches the baseline's end b at 2000 (4 − b) / (4 − e)."""
    way = {"derived/t": {"time_to": "val/loss", "value": {"arm": "base"}, "interpolate": True}}
    claim = {"text": "sooner", "lower": {"arm": "good", "than": "base", "metric": "derived/t", "margin": 100}}
    report = study(tmp_path, {"base": 2.0, "good": 1.5, "bad": 2.5}, way, [claim])
    frame = report.records.metrics
    found = frame[frame["metric"] == "derived/t"].set_index(["arm", "seed"])["value"]
    loss = frame[frame["metric"] == "val/loss"].set_index(["arm", "seed"])["value"]
    for seed in range(5):
        expected = 2000 * (4 - loss["base", seed]) / (4 - loss["good", seed])
        assert found["good", seed] == pytest.approx(expected, rel=1e-6)
        assert found["base", seed] == pytest.approx(2000) and found["bad", seed] == 2000
    assert report.verdicts[0].outcome == "supported"
    assert report.records.unreached == {("", "bad", seed, "derived/t") for seed in range(5)}
    (said,) = [each for each in report.caveats if "does not reach the target of derived/t" in each]
    assert said.startswith("bad does not reach the target of derived/t in 5 of 5 trials")
    again = read_results(
        tmp_path / "runs/studies/99_fake/report/results.csv", replace(report.records.manifest, cells=())
    )
    assert again.unreached == report.records.unreached


def test_a_target_that_no_arm_reaches_is_no_comparison_of_budgets(tmp_path: Path) -> None:
    """Trainings of 100 and 200 seconds that never get there: cut off at their own ends, the first would be faster."""
    claims = [
        {"text": "lower", "lower": {"arm": "a", "than": "b", "metric": "derived/s", "margin": 0}},
        {"text": "sum", "contrast": {"weights": {"a": 1, "b": -1}, "metric": "derived/s", "below": 0}},
    ]
    way = {"derived/s": {"time_to": "val/loss", "value": 0.5, "unit": "seconds"}}
    report = study(tmp_path, {"a": 2.0, "b": 2.0}, way, claims)
    for verdict in report.verdicts:
        assert verdict.outcome == "undecided" and verdict.contrasts[0].estimate.limits == (-math.inf, math.inf)
        assert any(note.startswith("half of the times of a and b or more are cut off") for note in verdict.notes)
    asked = replace(report.records.manifest, cells=())
    again = read_results(tmp_path / "runs/studies/99_fake/report/results.csv", asked)
    assert [each.outcome for each in judge_all(claims_of(again.manifest), again)[""]] == ["undecided"] * 2


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"arm": "bse"}, r"must be a number or \{arm: one of the arms\}.*did you mean 'base'"),
        ({"arms": "base"}, "must be a number or"),
        ("base", "needs a finite `value`"),
    ],
)
def test_a_wrong_target_is_told_in_one_line(value: object, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        parse_derive({"derived/t": {"time_to": "val/loss", "value": value}}, ["val/loss"], ["base", "other"])
    with pytest.raises(UsageError, match="`interpolate` of derived/t must be true or false"):
        parse_derive({"derived/t": {"time_to": "val/loss", "value": 1, "interpolate": 1}}, ["val/loss"])


def test_a_seed_without_a_target_is_not_known_to_have_missed_it(tmp_path: Path) -> None:
    """Arm a lost seven of twelve trials; b passes what a comes to with each of the other five seeds."""
    claim = {"text": "b comes there", "reaches": {"arm": "b", "metric": "derived/t", "value": 1e9, "below": 0.9}}
    store = Store(tmp_path, {"a": ["x=a"], "b": ["x=b"]}, "a", ["val/loss", "derived/t"], range(12), [claim])
    store.manifest["derive"] = {"derived/t": {"time_to": "val/loss", "value": {"arm": "a"}}}
    for seed in store.seeds:
        if seed < 7:
            store.write_trial("a", seed, {}, status="diverged")
        else:
            store.write_trial("a", seed, {"val/loss": 2.5}, history=history(2.5))
        store.write_trial("b", seed, {"val/loss": 2.0}, history=history(2.0))
    store.write_manifest()
    records = build(store.study, store.runs).records
    (verdict,) = judge_all(claims_of(records.manifest), records)[""]
    assert verdict.outcome == "undecided" and verdict.contrasts[0].estimate.n == 5
    assert verdict.contrasts[0].estimate.value == 1
    assert any("no finite derived/t with 7 of 12 seeds: left out" in note for note in verdict.notes)
