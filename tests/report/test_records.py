"""Reading the store: every status, and every kind of damage as something to show."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path

import pytest

from report.store import ENVIRONMENT, Store
from swapformer.errors import UsageError
from swapformer.report.records import read
from swapformer.results.artifacts import Artifact, probe_keys, write_artifact
from swapformer.results.moments import Moment, at_moment

ID = '{"schema_version": 1, "id": "0000000000000000"'
"""How a record of the first arm's first trial begins."""


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path, {"a": [], "b": ["model.x=1"]}, "a", ["val/loss", "probe/x"], seeds=range(3))


def statuses(store: Store) -> dict[tuple[str, int], str]:
    cells = read(store.study, store.runs).cells
    return {(arm, seed): status for arm, seed, status in cells[["arm", "seed", "status"]].itertuples(index=False)}


def test_every_status_is_seen_and_only_finished_trials_have_values(store: Store) -> None:
    for seed, status in enumerate(("finished", "diverged", "failed")):
        store.write_trial("a", seed, {"val/loss": 1.0}, status, reason=f"because {status}")
    for seed, status in enumerate(("interrupted", "killed")):
        store.write_trial("b", seed, {"val/loss": 1.0}, status)
    store.write_manifest()
    records = read(store.study, store.runs)
    assert list(records.cells["status"]) == ["finished", "diverged", "failed", "interrupted", "killed", "missing"]
    assert list(records.metrics["value"]) == [1.0]
    assert records.cells["reason"][1] == "because diverged"


def test_running_means_that_someone_holds_the_lock(store: Store) -> None:
    directory = store.write_trial("a", 0, {}, "running")
    store.write_manifest()
    assert statuses(store)["a", 0] == "killed"  # no lock at all
    lock = directory / "lock"
    lock.write_text("")
    assert statuses(store)["a", 0] == "killed"  # a lock that nobody holds
    code = "import fcntl, sys; f = open(sys.argv[1]); fcntl.flock(f, 2); print(1, flush=True); input()"
    holder = subprocess.Popen(
        [sys.executable, "-c", code, lock],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    try:
        assert holder.stdout is not None and holder.stdout.readline()
        assert statuses(store)["a", 0] == "running"
    finally:
        holder.kill()
        holder.communicate()
    assert statuses(store)["a", 0] == "killed"  # SIGKILL released it


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ('{"schema_version": 1, "id"', "cannot be read"),
        ("[]", "not a JSON object with a schema_version"),
        ('{"schema_version": 99, "status": "finished"}', "schema version 99"),
        ('{"schema_version": 1, "status": "finished"}', "lacks"),
        (f'{ID}, "status": "done"}}', "unknown status 'done'"),
        (f'{ID}, "status": "finished", "metrics": {{}}, "seed": 7}}', "seed 7"),
        (f'{ID}, "status": "finished", "seed": 0}}', "must hold `metrics`"),
        ("\x00\x00", "cannot be read"),
    ],
)
def test_a_damaged_record_is_shown_as_corrupt(store: Store, content: str, reason: str) -> None:
    (store.write_trial("a", 0, {"val/loss": 1.0}) / "record.json").write_text(content)
    store.write_manifest()
    records = read(store.study, store.runs)
    assert records.cells["status"][0] == "corrupt"
    assert reason in records.cells["reason"][0]
    assert len(records.problems) == 1 and len(records.metrics) == 0


def test_a_record_of_the_version_before_counts_like_one_of_today(store: Store) -> None:
    """Version 1 kept the machine in `environment`; the class of the environment leaves it out."""
    machine = {"python": "3.11.7", "platform": "Linux", "host": "elsewhere"}
    store.write_trial("a", 0, {"val/loss": 1.0}, schema_version=1, environment={**ENVIRONMENT, **machine})
    store.write_trial("a", 1, {"val/loss": 2.0})
    store.write_manifest()
    records = read(store.study, store.runs)
    assert list(records.metrics["value"]) == [1.0, 2.0] and not records.problems
    assert records.cells["environment"][0] == records.cells["environment"][1]


def test_undecodable_bytes_are_damage_too(store: Store) -> None:
    (store.write_trial("a", 0, {}) / "record.json").write_bytes(b"\xff\xfe\x00{")
    store.write_manifest()
    assert statuses(store)["a", 0] == "corrupt"


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_record_with_a_number_that_nobody_writes_is_damaged(store: Store, value: float) -> None:
    """Such as 1e999, which is no finite number: the trial is not complete."""
    store.write_trial("a", 0, {"val/loss": value, "val/accuracy": 0.5})
    store.write_manifest()
    records = read(store.study, store.runs)
    assert records.metrics.empty and records.count("corrupt") == 1
    assert "`metrics` must hold finite numbers, but 'val/loss' is" in records.problems[0]


@pytest.mark.parametrize("value", [-1e308])
def test_a_metric_that_is_no_finite_number_is_left_out_and_named(store: Store, value: float) -> None:
    store.write_trial("a", 0, {"val/loss": value, "val/accuracy": 0.5})
    store.write_manifest()
    records = read(store.study, store.runs)
    assert list(records.metrics["metric"]) == ["val/accuracy"]
    assert "'val/loss' is not a finite number" in records.problems[0]


def test_probe_metrics_come_from_artifacts_and_a_broken_one_is_named(store: Store) -> None:
    directory = store.write_trial("a", 0, {"val/loss": 1.0}, probes={"probe/x": 0.25})
    (directory / "artifacts" / "broken.json").write_text("{")
    store.write_manifest()
    records = read(store.study, store.runs)
    assert dict(zip(records.metrics["metric"], records.metrics["value"], strict=True)) == {
        "val/loss": 1.0,
        "probe/x": 0.25,
    }
    assert "broken.json" in records.problems[0]


def test_a_torn_history_loses_its_last_line_alone(store: Store) -> None:
    directory = store.write_trial("a", 0, {"val/loss": 1.0})
    (directory / "metrics.csv").write_text(
        "step,name,value\n100,val/loss,2.5\n100,train/loss,9\n200,val/loss,2.\n300,val/loss,1.23"
    )
    store.write_manifest()
    records = read(store.study, store.runs)
    assert list(records.histories["step"]) == [100, 200]  # 1.23 may have been 1.2345
    assert list(records.histories["value"]) == [2.5, 2.0]
    assert [problem.partition(": ")[2] for problem in records.problems] == ["its last line is cut, and was left out"]


def test_a_damaged_line_in_a_history_is_left_out_and_counted(store: Store) -> None:
    directory = store.write_trial("a", 0, {"val/loss": 1.0})
    (directory / "metrics.csv").write_text(
        "step,name,value\n100,val/loss,2.5\n1\x00,,\ngarbage\n200,val/loss,nan\n300,val/loss,2.1\n"
    )
    store.write_manifest()
    records = read(store.study, store.runs)
    assert list(records.histories["step"]) == [100, 200, 300]
    assert "2 damaged lines" in records.problems[0]


def test_a_step_measured_twice_after_a_resume_counts_once(store: Store) -> None:
    directory = store.write_trial("a", 0, {"val/loss": 1.0})
    (directory / "metrics.csv").write_text("step,name,value\n100,val/loss,2.5\n200,val/loss,2.2\n200,val/loss,2.1\n")
    store.write_manifest()
    assert list(read(store.study, store.runs).histories["value"]) == [2.5, 2.1]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "does not exist"),
        ("{", "cannot be read"),
        ("[]", "must be a mapping"),
        ('{"schema_version": 9}', "schema_version 9"),
        ('{"name": "x"}', "lacks `baseline`"),
        (
            json.dumps({"name": "x", "baseline": "a", "arms": {"a": []}, "seeds": 3, "metrics": [], "cells": []}),
            "must be a list",
        ),
        (json.dumps({"name": "x", "baseline": "z", "arms": {"a": []}, "seeds": [], "metrics": [], "cells": []}), "'z'"),
    ],
)
def test_a_damaged_manifest_is_one_clear_line(tmp_path: Path, content: str | None, message: str) -> None:
    study = tmp_path / "studies" / "x"
    study.mkdir(parents=True)
    if content is not None:
        (study / "manifest.json").write_text(content)
    with pytest.raises(UsageError, match=message) as error:
        read(study, tmp_path)
    assert "swapformer study x" in str(error.value) and "\n" not in str(error.value)


def test_the_environment_class_is_device_torch_threads_and_determinism(store: Store) -> None:
    store.write_trial("a", 0, {"val/loss": 1.0})
    store.write_trial("a", 1, {"val/loss": 1.0}, environment=ENVIRONMENT | {"python": "3.14", "platform": "Mars"})
    store.write_trial("a", 2, {"val/loss": 1.0}, environment=ENVIRONMENT | {"threads": 2})
    store.write_trial("b", 0, {"val/loss": 1.0}, environment=ENVIRONMENT | {"tf32": True})
    store.write_manifest()
    first, same, other, coarse = read(store.study, store.runs).cells["environment"][:4]
    assert first == same == "cpu · torch 2.13.0 · 1 thread · deterministic"
    assert other == "cpu · torch 2.13.0 · 2 threads · deterministic"
    assert coarse == f"{first} · TF32"


def test_losses_are_known_to_the_last_digit_and_a_loss_of_0_by_those_before_it(store: Store) -> None:
    """A final loss of 0 is one that two trainings may share; one row of the history tells them apart."""
    row = (10, 2.5)
    for arm, seed, last in (("a", 0, 1.5), ("b", 0, 1.5), ("a", 1, 1.5), ("b", 1, 1.5000000000000002)):
        store.write_trial(arm, seed, {"val/loss": 0.0}, history={"train/loss": [row, (20, last)]})
    for arm, final in (("a", 0.0), ("b", 5e-324)):
        store.write_trial(arm, 2, {"val/loss": final})
    store.write_manifest()
    found = read(store.study, store.runs)
    same = [found.losses["", "a", seed] == found.losses["", "b", seed] for seed in range(3)]
    assert same == [True, False, False]
    for arm, every in (("a", 1), ("b", 2)):
        store.write_trial(arm, 2, {"val/loss": 0.1}, history={"train/loss": [(every, 2.5)]})
    again = read(store.study, store.runs)
    assert again.losses["", "a", 2] == again.losses["", "b", 2], "one training, averaged over other steps"
    assert "train/loss" not in set(found.histories["metric"]), "only the study's metrics are drawn"


def write_moments(store: Store, arm: str, seed: int, found: dict[str, float]) -> None:
    """What a probe `p` with the setting 1 found at moments."""
    for moment, value in found.items():
        artifact = Artifact({"a": 1}, {at_moment("probe/x", parsed(moment)): value})
        write_artifact(store.directory(arm, seed), at_moment("p", parsed(moment)), artifact)


def parsed(moment: str) -> Moment:
    return int(moment) if moment.isdecimal() else moment


def test_a_trial_that_diverged_has_what_was_measured_before_it_trained_and_no_other_number(tmp_path: Path) -> None:
    derived = ["derived/growth", "derived/more", "derived/share", "derived/late"]
    metrics = ["probe/x:init", "probe/x:10", "probe/x", *derived]
    derive = {
        "derived/growth": {"log": "probe/x:init"},
        "derived/more": {"ratio": ["probe/x:10", "probe/x:init"]},
        "derived/share": {"ratio": ["derived/growth", "probe/x:init"]},
        "derived/late": {"ratio": ["derived/growth", "derived/more"]},
    }
    store = Store(tmp_path, {"a": []}, "a", metrics, seeds=range(2), manifest={"derive": derive})
    probes = {"p": {"a": 1, "at": ["init", 10, "end"]}}
    cells = [
        {"arm": "a", "seed": seed, "trial": store.trial("a", seed), "probes": probe_keys({"probes": probes})}
        for seed in range(2)
    ]
    store.manifest["cells"] = cells
    history = {"probe/x": [(10, 3.0)]}
    store.write_trial("a", 0, {"val/loss": 1.0}, history=history)
    store.write_trial("a", 1, {}, "diverged", history=history, steps=50)
    write_moments(store, "a", 0, {"init": 2.0, "10": 3.0, "end": 4.0})
    write_moments(store, "a", 1, {"init": 2.5, "10": 3.0})
    store.write_manifest()
    records = read(store.study, store.runs)
    columns = records.metrics[["seed", "metric", "value"]]
    values = {(seed, name): value for seed, name, value in columns.itertuples(index=False)}
    assert {name for seed, name in values if seed == 0} == {"val/loss", *metrics}
    assert {name: value for (seed, name), value in values.items() if seed == 1} == {
        "probe/x:init": 2.5,
        "derived/growth": pytest.approx(math.log(2.5)),
        "derived/share": pytest.approx(math.log(2.5) / 2.5),
    }
    curves = records.histories[records.histories["metric"] == "probe/x"]
    seen = {(row.seed, row.status, row.step): row.value for row in curves.itertuples(index=False)}
    assert seen == {
        (0, "finished", 0): 2.0, (0, "finished", 10): 3.0, (0, "finished", 2000): 4.0,
        (1, "diverged", 0): 2.5, (1, "diverged", 10): 3.0,
    }  # fmt: skip
    assert not records.problems


def test_a_number_from_before_training_stays_exact_where_a_trial_diverged(tmp_path: Path) -> None:
    store = Store(tmp_path, {"a": []}, "a", ["probe/x:init"], seeds=range(2))
    keys = probe_keys({"probes": {"p": {"a": 1, "at": ["init"]}}})
    store.manifest["cells"] = [
        {"arm": "a", "seed": seed, "trial": store.trial("a", seed), "probes": keys} for seed in range(2)
    ]
    for seed, status in enumerate(("finished", "diverged")):
        store.write_trial("a", seed, {"val/loss": 1.0} if seed == 0 else {}, status)
        found = Artifact({"a": 1}, {"probe/x:init": 2.0}, exact=("probe/x:init",))
        write_artifact(store.directory("a", seed), at_moment("p", "init"), found)
    store.write_manifest()
    assert read(store.study, store.runs).manifest.exact == ("probe/x:init",)


def test_a_moment_that_was_not_measured_while_the_training_lasted_is_named(tmp_path: Path) -> None:
    """Of a training that ended before a moment nothing is missing."""
    store = Store(tmp_path, {"a": []}, "a", ["probe/x:10"], seeds=range(2))
    keys = probe_keys({"probes": {"p": {"a": 1, "at": [10, 100]}}})
    store.manifest["cells"] = [
        {"arm": "a", "seed": seed, "trial": store.trial("a", seed), "probes": keys} for seed in range(2)
    ]
    store.write_trial("a", 0, {"val/loss": 1.0})
    store.write_trial("a", 1, {}, "diverged", steps=50)
    write_moments(store, "a", 0, {"100": 1.0})
    store.write_manifest()
    problems = read(store.study, store.runs).problems
    text = "the probe p has nothing after 10 steps, and the training is over"
    assert sorted(problems) == [f"{store.directory('a', seed)}: {text}" for seed in range(2)]
