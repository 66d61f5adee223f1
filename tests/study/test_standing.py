"""Where a study stands while it runs: read from files alone, so here they are written by hand."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

from swapformer.study.record import Record
from swapformer.study.standing import newest_step, standing
from swapformer.study.store import Store

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


def write(store: Store, arm: str, seed: int, status: str, history: str = "", **more: float) -> None:
    folder = store.directory(trial(arm, seed))
    folder.mkdir(exist_ok=True)
    (folder / "config.yaml").write_text("budget:\n  steps: 200\n")
    (folder / "metrics.csv").write_text(history)
    store.write(Record(trial(arm, seed), status, seed=seed, attempts=1, **more))  # type: ignore[arg-type]


def test_finished_running_and_missing_are_counted_by_arm_with_the_step_and_the_time_left(store: Store) -> None:
    write(store, "a", 0, "finished", seconds=30.0)
    write(store, "a", 1, "finished", seconds=50.0)
    write(store, "b", 0, "running", "step,name,value\n40,train/loss,2.5\n50,train/loss,2.4\n60,tra")
    with store.claim(trial("b", 0)):
        found = standing(store.studies / "mine", store)
    assert found.arms == {"a": {"finished": 2}, "b": {"running": 1, "missing": 1}}
    assert found.impossible == {"c": "it cannot be"}
    (running,) = found.running
    assert (running.arm, running.seed, running.step, running.steps) == ("b", 0, 50, 200)
    assert running.left == pytest.approx(40 * 0.75)  # the mean of the two, less the quarter that is done
    assert found.left == pytest.approx(30 + 40), "and one whole trial after it, in the one place that is used"


def test_before_any_trial_has_ended_its_own_speed_tells_the_time(store: Store) -> None:
    write(store, "a", 0, "running", "step,name,value\n50,train/loss,2.5\n")
    ago = time.time() - 10
    os.utime(store.directory(trial("a", 0)) / "record.json", (ago, ago))
    with store.claim(trial("a", 0)):
        found = standing(store.studies / "mine", store)
    assert found.running[0].left == pytest.approx(30, abs=1)
    assert found.left is None, "three more are missing, and nobody knows how long one takes"


def test_a_record_that_says_running_without_a_process_is_killed(store: Store) -> None:
    write(store, "a", 0, "running")
    found = standing(store.studies / "mine", store)
    assert found.arms["a"] == {"killed": 1, "missing": 1} and not found.running


@pytest.mark.parametrize(
    ("history", "step"),
    [
        ("", 0),
        ("step,name,value\n", 0),
        ("step,name,value\n10,train/loss,1.0", 0),
        ("step,name,value\n10,train/loss,1.0\n2", 10),
        ("step,name,value\n" + "".join(f"{n},train/loss,1.0\n" for n in range(10, 9010, 10)), 9000),
    ],
)
def test_the_newest_step_is_that_of_the_last_whole_row(tmp_path: Path, history: str, step: int) -> None:
    (tmp_path / "metrics.csv").write_text(history)
    assert newest_step(tmp_path / "metrics.csv") == step
    assert newest_step(tmp_path / "none.csv") == 0
