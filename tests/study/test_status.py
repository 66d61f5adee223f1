"""Where a study stands while it runs: read from files alone, so here they are written by hand."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

from swapformer.results.record import Record
from swapformer.results.store import Store
from swapformer.results.trial_index import members
from swapformer.study.status import study_status
from swapformer.tools.status import main as status
from swapformer.tools.trials import main as trials

ARMS = ("a", "b")


@pytest.fixture
def store(tmp_path: Path) -> Store:
    found = Store(tmp_path)
    found.prepare()
    manifest = {
        "name": "mine", "baseline": "a", "arms": {arm: [] for arm in ARMS}, "seeds": [0, 1], "metrics": ["val/loss"],
        "cells": [{"arm": arm, "seed": seed, "trial": trial(arm, seed)} for arm in ARMS for seed in (0, 1)],
        "impossible": [{"arm": "c", "reason": "it cannot be"}],
    }  # fmt: skip
    (found.studies / "mine").mkdir()
    (found.studies / "mine" / "manifest.json").write_text(json.dumps(manifest))
    return found


def trial(arm: str, seed: int) -> str:
    return f"{ARMS.index(arm):08x}{seed:08x}"


def write(store: Store, arm: str, seed: int, status: str, history: str = "", **more: object) -> None:
    folder = store.directory(trial(arm, seed))
    folder.mkdir(exist_ok=True)
    (folder / "config.yaml").write_text("budget:\n  steps: 200\n")
    (folder / "metrics.csv").write_text(history)
    store.write(Record(trial(arm, seed), status, seed=seed, attempts=1, **more))  # type: ignore[arg-type]


def test_finished_running_and_missing_are_counted_by_arm_with_the_step_and_the_time_left(store: Store) -> None:
    write(store, "a", 0, "finished", seconds=30.0)
    write(store, "a", 1, "finished", seconds=50.0)
    write(store, "b", 0, "running", "step,name,value\n40,train/loss,2.5\n50,train/loss,2.4\n60,tra")
    with store.lock(trial("b", 0)):
        found = study_status(store.studies / "mine", store)
    assert found.arms == {"a": {"finished": 2}, "b": {"running": 1, "missing": 1}}
    assert found.impossible == {"c": "it cannot be"}
    (running,) = found.running
    assert (running.arm, running.seed, running.step, running.steps) == ("b", 0, 50, 200)
    assert running.left == pytest.approx(40 * 0.75)  # the mean of the two, less the quarter that is done
    assert found.left == pytest.approx(30 + 40), "and one whole trial after it, in the one place that is used"


def test_a_trial_whose_probe_failed_has_failed_for_its_study(store: Store) -> None:
    """It is trained, but the study calls it failed: the report lacks what was asked of it."""
    path = store.studies / "mine" / "manifest.json"
    manifest = json.loads(path.read_text())
    for cell in manifest["cells"]:
        cell["probes"] = {"p": "0" * 16}
    path.write_text(json.dumps(manifest))
    write(store, "a", 0, "finished", notes=("probes: p raised ValueError: broken",))
    write(store, "a", 1, "finished")
    found = study_status(store.studies / "mine", store)
    assert found.arms["a"] == {"failed": 1, "finished": 1}
    assert [(each.status, each.reason) for each in found.stopped] == [("failed", "probes: p raised ValueError: broken")]


def test_an_arm_without_trials_misses_the_first_look_in_each_condition_where_it_is_possible(store: Store) -> None:
    path = store.studies / "mine" / "manifest.json"
    manifest = json.loads(path.read_text())
    conditions = {f"k={k}": {"k": str(k)} for k in (1, 2, 3)}
    manifest |= {"seeds": [*range(10)], "looks": [2, 10], "conditions": conditions, "cells": [
        {"arm": "a", "seed": seed, "trial": trial("a", seed), "condition": "k=1"} for seed in (0, 1)
    ], "impossible": [{"arm": "b", "condition": "k=3", "reason": "it cannot be"}]}  # fmt: skip
    path.write_text(json.dumps(manifest))
    assert study_status(store.studies / "mine", store).arms == {"a": {"missing": 2 + 2 + 2}, "b": {"missing": 2 + 2}}


def test_before_any_trial_has_ended_its_own_speed_tells_the_time(store: Store) -> None:
    write(store, "a", 0, "running", "step,name,value\n50,train/loss,2.5\n")
    ago = time.time() - 10
    os.utime(store.directory(trial("a", 0)) / "record.json", (ago, ago))
    with store.lock(trial("a", 0)):
        found = study_status(store.studies / "mine", store)
    assert found.running[0].left == pytest.approx(30, abs=1)
    assert found.left is None, "three more are missing, and nobody knows how long one takes"


def test_a_record_that_says_running_without_a_process_is_killed(store: Store) -> None:
    write(store, "a", 0, "running")
    found = study_status(store.studies / "mine", store)
    assert found.arms["a"] == {"killed": 1, "missing": 1} and not found.running


def test_trials_that_settings_are_chosen_by_are_counted_and_belong_to_the_study(
    store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    path = store.studies / "mine" / "manifest.json"
    tried = [{"arm": "a", "values": {"lr": lr}, "trials": [f"{lr}" * 16]} for lr in ("1", "2")]
    tuning = {"metric": "val/loss", "keys": ["lr"], "seeds": [9], "tried": tried, "refused": [], "chosen": []}
    path.write_text(json.dumps({**json.loads(path.read_text()), "cells": [], "tuning": tuning}))
    store.directory("1" * 16).mkdir()
    store.write(Record("1" * 16, "failed", reason="no luck", seed=9, attempts=1))
    found = study_status(path.parent, store)
    assert found.tuning == {"failed": 1, "missing": 1} and found.arms == {"a": {"missing": 2}, "b": {"missing": 2}}
    assert found.counts == {"failed": 1, "missing": 5}
    assert [(lost.arm, lost.seed, lost.reason) for lost in found.stopped] == [("a tuning lr=1", 9, "no luck")]
    assert str(members(store)["1" * 16][0]) == "mine/a tuning lr=1", "so no pruning takes it for nobody's"
    assert status([f"runs_dir={store.runs_dir}", "mine"]) == 0
    assert "(tuning)" in capsys.readouterr().out


def test_what_has_stopped_without_a_result_is_shown_with_reason_and_attempts(
    store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    write(store, "a", 0, "interrupted", reason="it ran into the time limit of 5 minutes")
    write(store, "a", 1, "finished", seconds=5.0)
    write(store, "b", 0, "killed", reason="signal SIGKILL")
    store.write(Record(trial("b", 0), "killed", reason="signal SIGKILL", seed=0, attempts=3))
    write(store, "b", 1, "running")
    store.write(Record(trial("b", 1), "running", seed=1, attempts=2))
    place = f"runs_dir={store.runs_dir}"
    with store.lock(trial("b", 1)):
        assert status([place, "mine"]) == 0
        shown = capsys.readouterr().out
        assert trials([place]) == 0
        listed = capsys.readouterr().out
    assert f"{trial('a', 0)}  a    seed 0  interrupted: it ran into the time limit of 5 minutes" in shown
    assert f"{trial('b', 0)}  b    seed 0  killed after 3 attempts: signal SIGKILL" in shown
    assert "step 0 of 200 (  0%)" in shown and "attempt 2" in shown
    lines = {line.split()[0]: line for line in listed.splitlines()}
    assert lines[trial("a", 0)].endswith("mine/a  it ran into the time limit of 5 minutes")
    assert lines[trial("b", 0)].endswith("mine/b  attempt 3  signal SIGKILL")
    assert lines[trial("a", 1)].endswith("mine/a")


def test_a_store_without_a_study_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = Store(tmp_path)
    found.prepare()
    assert status([f"runs_dir={tmp_path}"]) == 0
    assert capsys.readouterr() == ("", f"swapformer: no study in {found.studies}\n")
