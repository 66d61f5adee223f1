"""Sequential studies and grids from question to run_study, with trials that take milliseconds."""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from study import fakes
from swapformer.errors import UsageError
from swapformer.report.build import build
from swapformer.report.statistics.power import detectable, power
from swapformer.results.store import Store
from swapformer.study.arm_differences import find_differences
from swapformer.study.expand import expand
from swapformer.study.launch.trial import Trial, execute
from swapformer.study.plan import Plan
from swapformer.study.preview import preview, resolution
from swapformer.study.run_study import StudyResult, run_study
from swapformer.study.spec import parse


def plan(place: Path, **changes: Any) -> Plan:
    raw = {"arms": {"h1": ["heads=1"], "h2": ["heads=2"], "h4": ["heads=4"]}, "baseline": "h1", **changes}
    return expand(parse(raw, "crossed"), (), fakes.Composer(place / "journal", place / "runs"))


def answered(planned: Plan, place: Path) -> StudyResult:
    store = Store(place / "runs")

    def start(trials: Sequence[Trial]) -> None:
        for trial in trials:
            execute(trial, store, fakes.PROVENANCE, fakes.WORK)

    return run_study(planned, store, fakes.PROVENANCE, lambda progress: start, quiet=True)


def worse(arm: str, margin: float) -> dict[str, Any]:
    return {"text": arm, "worse": {"arm": arm, "than": "h1", "metric": "val/loss", "margin": margin}}


def test_a_dry_run_tells_what_more_seeds_find_at_the_error_that_is_left(tmp_path: Path) -> None:
    """Five seeds took 4 %; eight are judged at .5 %."""
    few, more = (plan(tmp_path, claims=[worse("h4", 3.0)], seeds=seeds) for seeds in (5, 8))
    answered(few, tmp_path)
    store = Store(tmp_path / "runs")
    at_five, at_eight = (preview(each, store, find_differences(each), 1).distance for each in (few, more))
    assert at_five == resolution(few.spec) == pytest.approx(detectable(5, 0.04))
    assert at_eight == pytest.approx(detectable(8, 0.005))


def reached(found: StudyResult) -> dict[str, int]:
    """How many seeds each arm came to."""
    arms = [cell.arm for cell in found.plan.cells]
    return {arm: arms.count(arm) for arm in found.plan.spec.arms}


LOOKS = (4, 7, 10)


@pytest.fixture(scope="module")
def looks_place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("looks")


@pytest.fixture(scope="module")
def looks_plan(looks_place: Path) -> Plan:
    """h4 is worse by 1.5 on average, far beyond its margin of 0; h2 by 0.5, which is its very margin."""
    claims = [worse("h4", 0.0), worse("h2", 0.5)]
    return plan(looks_place, claims=claims, seeds={"looks": list(LOOKS)}, overrides=["spread=1"])


@pytest.fixture(scope="module")
def looked(looks_plan: Plan, looks_place: Path) -> StudyResult:
    return answered(looks_plan, looks_place)


class TestLooks:
    """The fake loss grows by heads × a number in [0, `spread`) of the seed: 0.5 · spread for each head on average."""

    def test_begin_with_the_first_seeds_alone(self, looks_plan: Plan) -> None:
        assert len(looks_plan.cells) == 3 * 4

    def test_add_seeds_for_the_arms_of_undecided_claims_alone(self, looked: StudyResult) -> None:
        decided, undecided = looked.report.verdicts
        assert (decided.outcome, undecided.outcome) == ("supported", "undecided")
        assert decided.look in LOOKS[:2] and undecided.look == 10
        assert reached(looked) == {"h1": 10, "h2": 10, "h4": decided.look}

    def test_are_judged_at_a_third_of_the_error(self, looked: StudyResult) -> None:
        first, second = looked.report.verdicts
        assert first.level in (pytest.approx(0.04 / 3 / 2), pytest.approx(0.04 / 3))
        assert second.level == pytest.approx(0.04 / 3), "the only claim that was left"

    def test_say_how_many_trials_they_saved(self, looked: StudyResult) -> None:
        spared = 3 * 10 - sum(reached(looked).values())
        assert looked.report.as_dict()["saved"] == spared > 0
        assert any(f"{spared} trials were not needed" in sentence for sentence in looked.report.as_dict()["design"])

    def test_come_to_the_same_end_when_run_again(
        self, looked: StudyResult, looks_plan: Plan, looks_place: Path
    ) -> None:
        trained = fakes.runs(looks_place / "journal")
        again = answered(looks_plan, looks_place)
        assert fakes.runs(looks_place / "journal") == trained
        assert [v.outcome for v in again.report.verdicts] == [v.outcome for v in looked.report.verdicts]
        assert reached(again) == reached(looked)

    def test_are_counted_by_a_dry_run_as_far_as_they_came(
        self, looked: StudyResult, looks_plan: Plan, looks_place: Path
    ) -> None:
        found = preview(looks_plan, Store(looks_place / "runs"), find_differences(looks_plan), 1)
        assert {each.arm: len(each.trials) for each in found.asked} == reached(looked)
        assert found.count("reported", left=True) == 0

    def test_ask_for_no_more_where_no_seed_could_help(self, tmp_path: Path) -> None:
        """h4 diverges: a mean over survivors cannot show that it is better, however many there are."""
        claim = {"text": "x", "better": {"arm": "h4", "than": "h1", "metric": "val/loss", "margin": 0}}
        arms = {"h1": ["heads=1"], "h4": ["heads=4", "behaviour=diverge"]}
        found = answered(plan(tmp_path, arms=arms, claims=[claim], seeds={"looks": [2, 9]}), tmp_path)
        assert len(found.plan.cells) == 2 * 2


@pytest.fixture(scope="module")
def crossed(tmp_path_factory: pytest.TempPathFactory) -> StudyResult:
    """Heads matter with a wide spread and not with a narrow one; h7 cannot be built."""
    place = tmp_path_factory.mktemp("grid")
    planned = plan(
        place, arms={"h1": ["heads=1"], "h4": ["heads=4"], "h7": ["heads=7"]},
        claims=[worse("h4", 0.1), worse("h7", 0.1)], seeds=10, grid={"spread": [1, 0.01], "kind": ["a", "b"]},
        tune={"best": [1, 2], "seeds": 1}, overrides=["lr=1"],
    )  # fmt: skip
    return answered(planned, place)


class TestGrids:
    def test_cross_every_arm_with_every_condition_and_seed(self, crossed: StudyResult) -> None:
        assert len(crossed.plan.cells) == 2 * 4 * 10
        conditions = [
            "spread=1, kind=a", "spread=1, kind=b", "spread=0.01, kind=a", "spread=0.01, kind=b",
        ]  # fmt: skip
        assert list(crossed.plan.spec.conditions) == conditions
        assert set(crossed.plan.impossible) == {("h7", condition) for condition in conditions}
        assert {cell.trial.config["spread"] for cell in crossed.plan.cells if "spread=1," in cell.condition} == {1}

    def test_tune_each_arm_in_each_condition(self, crossed: StudyResult) -> None:
        assert len(crossed.plan.chosen) == 2 * 4
        assert [choice.values for choice in crossed.plan.chosen.values()] == [{"best": "1"}] * 8

    def test_judge_each_condition_in_one_family_and_say_where_a_verdict_holds(self, crossed: StudyResult) -> None:
        everywhere = crossed.report.claims[0]
        assert everywhere.outcome == "depends"
        assert [verdict.outcome for verdict in everywhere.verdicts.values()] == ["supported"] * 2 + ["refuted"] * 2
        assert everywhere.text.startswith("The verdict depends on the condition: supported with spread=1, kind=a; ")
        assert min(verdict.level for verdict in crossed.report.verdicts) == pytest.approx(0.04 / 8)
        assert crossed.report.claims[1].outcome == "undecided"

    def test_have_tables_and_figures_of_each_condition(self, crossed: StudyResult) -> None:
        names = {path.name for path in crossed.report.files}
        assert {"grid_val_loss.svg", "spread_1_kind_a_axis_val_loss.svg"} <= names
        lines = (crossed.report.directory / "results.csv").read_text().splitlines()
        assert lines[0].startswith("study,spread,kind,arm,seed,metric,value")
        looks = [line for line in lines if ",look@" in line]
        assert len(looks) == 10 and looks[0].startswith("crossed,,,,0,look@10,0.04,,,judged,,")
        stated = [line for line in lines if ",stated," in line]
        assert (
            stated
            and len(lines) - len(looks) - len(stated) == 1 + 2 * 4 * 10
            and lines[1].startswith("crossed,1,a,h1,0,val/loss,")
        )
        assert (crossed.report.directory / "table.md").read_text().count("### spread=") == 4


def test_means_over_survivors_are_named_with_their_condition(tmp_path: Path) -> None:
    """h4 diverges with rates above 0.5: in one condition its second seed does, in the other none."""
    arms = {"h1": ["heads=1"], "h4": ["heads=4", "stable=0.5"]}
    planned = plan(tmp_path, arms=arms, seeds=2, grid={"lr": [0.1, 0.9]}, overrides=["best=1"])
    store = Store(tmp_path / "runs")
    (survivor, _) = [cell.trial for cell in planned.cells if (cell.arm, cell.condition) == ("h4", "lr=0.9")]
    record = execute(survivor, store, fakes.PROVENANCE, fakes.WORK)
    assert record is not None and record.status == "diverged"
    store.write(record.but(status="finished", metrics={"val/loss": 1.0}))
    (caveat,) = [text for text in answered(planned, tmp_path).report.caveats if text.startswith("Means of")]
    assert caveat.startswith("Means of h4 with lr=0.9 are over surviving trials and flatter; ")


def test_a_step_is_counted_with_the_task_that_it_trains_on(tmp_path: Path) -> None:
    """Ten steps at 100 times the fake's cost: 12 for each of 4 units of width, and 100 for each symbol."""
    entries = find_differences(plan(tmp_path, seeds=1, grid={"task.symbols": [0, 3]}))
    assert {each.condition: each.flops for each in entries} == {
        "task.symbols=0": 10 * 100 * 48, "task.symbols=3": 10 * 100 * 348
    }  # fmt: skip


def seen(seeds: int | dict[str, list[int]], **changes: Any) -> float:
    claims = [{**worse("h2", 0.0), "text": str(number)} for number in range(3)]
    arms = {"h1": ["heads=1"], "h2": ["heads=2"]}
    return resolution(parse({"baseline": "h1", "arms": arms, "claims": claims, "seeds": seeds, **changes}, "planned"))


def test_what_seeds_would_see_shares_the_error_among_claims_looks_and_conditions() -> None:
    """Four in five times a difference of that many standard deviations is seen, at 4 % over what shares it."""
    for found, shares in (
        (seen(8), 3), (seen({"looks": [2, 3, 8]}), 9), (seen(8, grid={"size": ["s", "m", "l", "xl"]}), 12),
    ):  # fmt: skip
        # half of it, since at a margin of 0 both verdicts share the level
        assert power(found, 1.0, 8, 0.04 / shares / 2) == pytest.approx(0.8, abs=0.002)


def test_a_baseline_that_cannot_be_built_somewhere_stops_the_study(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="the baseline 'a' cannot be built with heads=7: heads must divide"):
        plan(tmp_path, arms={"a": ["kind=a"], "b": ["kind=b"]}, baseline="a", grid={"heads": [1, 7]})


def test_the_manifest_names_conditions_and_looks(tmp_path: Path) -> None:
    from swapformer.study.manifest import make_manifest

    found = make_manifest(
        plan(tmp_path, claims=[worse("h4", 0)], seeds={"looks": [2, 3]}, grid={"k": ["a", "b"]}), fakes.PROVENANCE
    )
    assert json.loads(found.to_json())["conditions"] == {"k=a": {"k": "a"}, "k=b": {"k": "b"}}
    assert found.looks == (2, 3) and found.cells[0].condition == "k=a" and len(found.cells) == 12


class TestStudiesThatShareTrials:
    """The fake probe measures the number that it is asked with."""

    @staticmethod
    def numbers(place: Path, batches: int) -> set[str]:
        """What a study that asks with this setting reports of its probe."""
        spec = parse(
            {"arms": {"h1": ["heads=1"], "h2": ["heads=2"]}, "baseline": "h1", "seeds": 2,
             "metrics": ["probe/similarity"], "overrides": [f"+probes.similarity={batches}"]}, f"asks{batches}",
        )  # fmt: skip
        planned = expand(spec, (), fakes.Composer(place / "journal", place / "runs"))
        return reported_numbers(answered(planned, place).report.directory)

    @pytest.mark.parametrize("order", [(1, 4), (4, 1)])
    def test_and_ask_a_probe_with_other_settings_keep_their_own_numbers(
        self, order: tuple[int, int], tmp_path: Path
    ) -> None:
        for batches in order:
            assert self.numbers(tmp_path, batches) == {f"{float(batches)}"}
        assert len(fakes.runs(tmp_path / "journal")) == 4, "the trials are shared"
        for batches in order:
            again = build(tmp_path / "runs" / "studies" / f"asks{batches}", tmp_path / "runs")
            assert reported_numbers(again.directory) == {f"{float(batches)}"}

    def test_a_store_with_one_artifact_for_each_probe_would_mix_them_up(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The planted fault: artifacts known by the trial and the probe alone."""
        monkeypatch.setattr("swapformer.results.artifacts.settings_key", lambda settings: "same")
        assert self.numbers(tmp_path, 1) == {"1.0"}
        assert self.numbers(tmp_path, 4) == {"1.0"}, "no artifact seems to be missing"


def reported_numbers(directory: Path) -> set[str]:
    """The values of the probe in a report's table."""
    with (directory / "results.csv").open(newline="") as file:
        return {row["value"] for row in csv.DictReader(file) if row["metric"] == "probe/similarity"}


def test_claims_may_be_limited_to_conditions_or_compare_them(tmp_path: Path) -> None:
    """The loss grows by heads × a seed's number in [0, spread): h4 is 1.5 worse with spread=1, and .015 with .01."""
    signs = {"h4 with spread=1": 1, "h1 with spread=1": -1, "h4 with spread=0.01": -1, "h1 with spread=0.01": 1}
    claims = [
        {**worse("h4", 0.1), "at": {"spread": 1}},
        {"text": "interaction", "contrast": {"weights": signs, "metric": "val/loss", "above": 0.1}},
        worse("h4", 0.1),
    ]
    found = answered(plan(tmp_path, claims=claims, seeds=10, grid={"spread": [1, 0.01]}), tmp_path).report
    limited, spanning, everywhere = found.claims
    assert [list(each.verdicts) for each in (limited, spanning)] == [["spread=1"]] * 2 and len(everywhere.verdicts) == 2
    assert (limited.outcome, spanning.outcome, everywhere.outcome) == ("supported", "supported", "depends")
    assert "Holm over 4 verdicts" in (found.directory / "report.html").read_text()
    assert found.records.manifest.ledger.series[0].seeds == tuple(range(10))


def test_a_study_file_derives_metrics_and_names_exact_ones(tmp_path: Path) -> None:
    planned = plan(tmp_path, derive={"derived/log": {"log": "val/loss"}}, exact=["derived/log"], seeds=1)
    assert planned.spec.metrics == ("val/loss", "derived/log") and planned.spec.exact == ("derived/log",)
    found = answered(planned, tmp_path).report.records
    assert set(found.metrics["metric"]) >= {"val/loss", "derived/log"}
    with pytest.raises(UsageError, match="`exact`: the study does not measure 'val/los'; did you mean 'val/loss'"):
        plan(tmp_path, exact=["val/los"])
