"""What is said of a study before it runs: counted against what then runs, and times against those of its records."""

from __future__ import annotations

import json
import math
import platform
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from study import fakes
from swapformer.cli import main
from swapformer.report.statistics.power import power as power_of
from swapformer.results.store import Store
from swapformer.study.arm_differences import find_differences
from swapformer.study.config import sizes
from swapformer.study.expand import expand
from swapformer.study.launch.trial import Trial, execute
from swapformer.study.plan import Plan
from swapformer.study.preview import SESSION, ArmTrials, StudyPreview, preview
from swapformer.study.spec import parse

ARMS = {"h1": ["heads=1"], "h2": ["heads=2"]}
CLAIM = {"text": "h2 is worse", "worse": {"arm": "h2", "than": "h1", "metric": "val/loss", "margin": 0.0}}


def plan(place: Path, **changes: Any) -> Plan:
    raw = {"arms": ARMS, "baseline": "h1", "seeds": 4, "claims": [CLAIM], **changes}
    return expand(parse(raw, "foreseen"), (), fakes.Composer(place / "journal", place / "runs"))


def foreseen(planned: Plan, place: Path, slots: int | None = 2) -> StudyPreview:
    return preview(planned, Store(place / "runs"), find_differences(planned), slots, memory=True)


def run(trials: Sequence[Trial], place: Path, seconds: float = 3.0, host: str | None = None) -> None:
    """Run trials, and write down how long each took, and where."""
    store = Store(place / "runs")
    store.prepare()
    for trial in trials:
        record = execute(trial, store, fakes.PROVENANCE, fakes.WORK)
        assert record is not None and record.machine["host"] == platform.node()
        where = record.machine if host is None else {**record.machine, "host": host}
        store.write(record.but(seconds=seconds, machine=where, environment={"device": "cpu"}))


def test_of_an_empty_store_it_counts_and_writes_nothing(tmp_path: Path) -> None:
    found = foreseen(plan(tmp_path), tmp_path)
    assert [(each.arm, len(each.trials), each.done) for each in found.asked] == [("h1", 4, ()), ("h2", 4, ())]
    assert found.operations == 4 * 10 * 100 * (48 + 48), "4 seeds of 10 steps of each arm, by the fake's count"
    assert found.bytes == 16 * 48 and math.isnan(found.seconds)
    assert found.summary.startswith("8 trials; with 4 seeds, a claim is decided in 4 of 5 studies if the true")
    assert "with 5 seeds " in found.summary and found.summary.endswith(" are enough")
    assert not (tmp_path / "runs").exists() and not (tmp_path / "journal").exists()


def test_trials_that_do_not_fit_into_memory_are_told_with_the_size_that_is_the_largest(tmp_path: Path) -> None:
    """The fake's step takes 16 · 48 bytes: two at a time need 1536."""
    found = foreseen(plan(tmp_path), tmp_path)
    assert (
        found.largest == "h2" and found.memory is not None and foreseen(plan(tmp_path), tmp_path, None).memory is None
    )
    told = [line for line in replace(found, memory=1535).lines() if line.startswith("that does not fit: 2 of h2 ")]
    assert len(told) == 1 and "leave out the largest size" in told[0]
    assert not any("does not fit" in line for line in replace(found, memory=1536).lines())


def test_the_memory_is_that_of_the_container_where_it_has_a_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit = tmp_path / "memory.max"
    limit.write_text("123456789\n")
    monkeypatch.setattr(sizes, "_CGROUP", limit)
    sizes.memory.cache_clear()
    try:
        assert foreseen(plan(tmp_path), tmp_path).memory == 123456789
    finally:
        sizes.memory.cache_clear()


def test_what_is_reused_and_its_times_come_from_the_store(tmp_path: Path) -> None:
    planned = plan(tmp_path)
    run(planned.trials[:3], tmp_path)  # seed 0 of both arms, seed 1 of h1
    found = foreseen(planned, tmp_path)
    assert [len(each.done) for each in found.asked] == [2, 1]
    assert found.seconds == (2 + 3) * 3.0 / 2 and found.as_dict()["to_run"] == {"reported": 5, "tuning": 0}
    assert found.summary.startswith("8 trials (3 in the store), about 8 s; ")
    assert math.isnan(foreseen(planned, tmp_path, slots=None).seconds), "other machines are not as fast"


def test_a_trial_that_diverged_early_says_how_long_a_step_takes_not_a_trial(tmp_path: Path) -> None:
    planned = plan(tmp_path)
    run(planned.trials[:2], tmp_path)
    store = Store(tmp_path / "runs")
    for trial in planned.trials[:2]:
        record = store.peek(trial.id)
        assert record is not None
        store.write(record.but(status="diverged", steps=record.steps // 2, seconds=1.5))
    assert foreseen(planned, tmp_path).seconds == 6 * 3.0 / 2


def test_an_arm_without_a_trial_takes_the_pace_of_those_that_have_one(tmp_path: Path) -> None:
    planned = plan(tmp_path, arms={"h1": [], "wide": ["model.width=8"]}, claims=[])
    run([cell.trial for cell in planned.cells if cell.arm == "h1"][:1], tmp_path)
    of = {each.arm: each for each in foreseen(planned, tmp_path).asked}
    assert of["wide"].seconds == pytest.approx(3.0 * of["wide"].operations / of["h1"].operations)


def test_times_of_other_machines_say_nothing(tmp_path: Path) -> None:
    planned = plan(tmp_path)
    run(planned.trials[:2], tmp_path, host="elsewhere")
    assert math.isnan(foreseen(planned, tmp_path).seconds)


def test_tuning_trials_are_counted_apart_and_looks_said(tmp_path: Path) -> None:
    planned = plan(tmp_path, tune={"lr": ["1e-3", "1e-2"], "seeds": 3}, seeds={"looks": [2, 5]})
    found = foreseen(planned, tmp_path)
    assert (found.count("reported"), found.count("tuning")) == (4, 12)
    assert len(planned.tuning_trials) == 12 and found.later == (5,)
    assert found.summary.startswith(
        "4 trials, 12 more to choose settings by, up to 5 seeds where claims stay undecided;"
    )


def test_a_setting_that_changes_the_model_is_counted_as_it_trains(tmp_path: Path) -> None:
    """A tuned rate costs what its arm does; a tuned width does not."""
    planned = plan(tmp_path, tune={"model.width": ["4", "8", "16"], "seeds": 1})
    found = [each for each in foreseen(planned, tmp_path).asked if each.what == "tuning" and each.arm == "h1"]
    steps = planned.templates[0].config["budget"]["steps"]
    assert [each.operations for each in found] == [100 * steps * 12 * width for width in (4, 8, 16)]


def test_the_distance_that_is_seen_has_a_power_of_80_percent(tmp_path: Path) -> None:
    """Of one claim with a margin of 0 at five seeds, by the noncentral t, in deviations of a seed's difference."""
    found = foreseen(plan(tmp_path, seeds=5), tmp_path)
    assert found.distance is not None and power_of(found.distance, 1.0, 5, 0.02) == pytest.approx(0.8, abs=0.005)


def test_a_dry_run_prints_it_and_leaves_no_store(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    study = tmp_path / "study.yaml"
    study.write_text(
        "baseline: one\narms: {one: [model.num_heads=1], two: [model.num_heads=2]}\nseeds: 3\n"
        "tune: {optim.lr: [1e-3, 3e-3], seeds: 2}\n"
        "overrides: [task=copy, model/size=nano, budget.steps=100]\n"
        "claims: [{text: two is better, better: {arm: two, than: one, metric: val/loss, margin: 0.01}}]\n"
    )
    store = tmp_path / "runs"
    assert main(["study", str(study), "--dry-run", f"runs_dir={store}"]) == 0
    out = capsys.readouterr().out
    assert "6 trials, 8 more to choose settings by, about " in out and "time on this machine: about " in out
    assert "memory of a step of the largest trial" in out and not store.exists()
    table = [line.split()[:6] for line in out.splitlines()[1:5]]
    assert table == [[arm, "2", "to", "choose", "from", "4"] for arm in ("one", "two")] + [
        [arm, "the", "best", "of", "them", "3"] for arm in ("one", "two")
    ]
    assert main(["study", str(study), "--dry-run", "--json", "hydra.launcher.slots=3", f"runs_dir={store}"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["to_run"] == {"reported": 6, "tuning": 8} and told["slots"] == 3 and told["seconds"] > 0
    assert sum(len(each["trials"]) for each in told["asked"]) == 14
    assert main(["study", str(study), "--dry-run", "--publish"]) == 2
    assert "nothing to --publish" in capsys.readouterr().err
    study.write_text(f"axis: model.d_model\n{study.read_text()}")
    assert main(["study", str(study), "--dry-run", f"runs_dir={store}"]) == 2
    assert "`axis` must name a key whose number differs in every arm" in capsys.readouterr().err


def of_minutes(minutes: dict[str, float], slots: int = 2, done: int = 0) -> StudyPreview:
    """A study whose arms take so many minutes of two slots each, baseline first."""
    asked = tuple(
        ArmTrials(arm, "", (), "reported", ("t1", "t2"), ("t1", "t2")[:done], math.nan, 60 * each * slots / 2)
        for arm, each in minutes.items()
    )
    return StudyPreview("s", asked, slots, None, 5, (), None, baseline=next(iter(minutes)))


class TestPartsOfAWorkingSession:
    @pytest.mark.parametrize("slots", [1, 2, 4])
    def test_a_longer_study_is_cut_with_the_baseline_in_each_part(self, slots: int) -> None:
        found = of_minutes({"base": 20, "a": 30, "b": 30, "c": 30, "d": 71, "e": 10}, slots)
        said = "\n".join(found.lines())
        assert found.parts == [["a", "b"], ["c"], ["d"], ["e"]] == found.as_dict()["parts"]
        assert "more than 1.5 h" in said and "cut it into 4 parts" in said and "(a, b; c; d; e)" in said

    def test_one_that_fits_says_nothing(self) -> None:
        found = of_minutes({"base": 40, "a": 49})
        assert found.seconds < SESSION and found.parts == [["a"]] and "more than" not in "\n".join(found.lines())

    def test_one_that_cannot_be_cut_asks_for_less(self) -> None:
        said = "\n".join(of_minutes({"base": 40, "a": 60}).lines())
        assert "that is more than 1.5 h: ask for fewer seeds" in said and "cut it" not in said

    def test_what_is_in_the_store_takes_no_time(self) -> None:
        assert of_minutes({"base": 80, "a": 60, "b": 30}, done=1).parts == [["a", "b"]]

    def test_unknown_times_propose_nothing(self) -> None:
        assert of_minutes({"base": math.nan, "a": 60, "b": 60}).parts == [["a", "b"]]
