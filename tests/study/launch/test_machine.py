"""The machine's lock: trials share it, a measurement has it alone."""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from study import fakes
from swapformer.errors import UsageError
from swapformer.results.store import Store
from swapformer.study.launch import machine
from swapformer.study.launch.machine import alone, computing, hardware, lock_files
from swapformer.study.launch.trial import Work, execute, real_work, require_as_named


@pytest.fixture(autouse=True)
def own_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A lock of this test alone: the machine's own is for those who measure on it."""
    monkeypatch.delenv(machine.VARIABLE, raising=False)
    monkeypatch.setattr(machine, "FOLDERS", (tmp_path,))


@contextmanager
def measuring() -> Iterator[threading.Event]:
    """Somebody measures in the meantime, as soon as nothing else holds the machine: then the event is set."""
    began = threading.Event()

    def measure() -> None:
        with alone():
            began.set()

    thread = threading.Thread(target=measure)
    thread.start()
    yield began
    thread.join(5)


def test_trials_run_beside_each_other_and_a_measurement_waits_for_them() -> None:
    with ExitStack() as stack:
        with computing(), computing():
            began = stack.enter_context(measuring())
            assert not began.wait(0.2)
        assert began.wait(5)


def test_measurements_wait_for_each_other() -> None:
    with ExitStack() as stack:
        with alone():
            began = stack.enter_context(measuring())
            assert not began.wait(0.2)
        assert began.wait(5)


def test_a_trial_waits_until_the_measurement_has_ended() -> None:
    began, ended = threading.Event(), threading.Event()

    def trial() -> None:
        with computing():
            began.set()

    with alone():
        thread = threading.Thread(target=trial)
        thread.start()
        assert not began.wait(0.2)
        ended.set()
    thread.join(5)
    assert began.is_set() and ended.is_set()


def test_who_waits_for_the_machine_comes_before_those_who_arrive_later() -> None:
    """Without a turn, trials that overlap would keep a measurement waiting for ever."""
    order: list[str] = []
    inside, free = threading.Event(), threading.Event()

    def first() -> None:
        with computing():
            inside.set()
            free.wait(5)

    def measured() -> None:
        with alone():
            order.append("measurement")

    def later() -> None:
        with computing():
            order.append("trial")

    threads = [threading.Thread(target=each) for each in (first, measured, later)]
    threads[0].start()
    assert inside.wait(5)
    threads[1].start()
    threads[1].join(0.3)
    threads[2].start()
    threads[2].join(0.3)
    assert order == [], "one computes, one waits to be alone, one waits behind it"
    free.set()
    for thread in threads:
        thread.join(5)
    assert order == ["measurement", "trial"]


def test_without_a_place_for_locks_trials_run_and_measurements_do_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delenv(machine.VARIABLE, raising=False)
    monkeypatch.setattr(machine, "FOLDERS", (tmp_path / "nowhere", tmp_path / "at all"))
    ran = False
    with computing():
        ran = True
    assert ran and "at all/swapformer-" in caplog.text and "times must not be measured now" in caplog.text
    with pytest.raises(UsageError, match="at all must be a folder that can be written"), alone():
        pass


def test_the_second_place_for_locks_is_for_machines_without_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(machine.VARIABLE, raising=False)
    monkeypatch.setattr(machine, "FOLDERS", (tmp_path / "nowhere", tmp_path))
    with ExitStack() as stack, computing():
        assert not stack.enter_context(measuring()).wait(0.2)


def test_the_machines_lock_is_one_whatever_the_folder_for_temporary_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SLURM sites give each job a TMPDIR of its own, or one that is not there."""
    monkeypatch.undo()
    here = lock_files()
    for folder in (tmp_path, tmp_path / "nowhere"):
        monkeypatch.setenv("TMPDIR", str(folder))
        monkeypatch.setattr(tempfile, "tempdir", None)
        assert lock_files() == here and all(path.parent != folder for path in here)


def test_hardware_is_known_by_what_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    here = hardware("cpu")
    assert here == hardware("cpu") and f"torch {torch.__version__}" in here
    monkeypatch.setattr(machine, "processor", lambda: "another")
    assert hardware("cpu") != here and "another" in hardware("cpu")


def test_a_trial_holds_the_machine_while_it_trains_and_while_probes_replay(tmp_path: Path) -> None:
    held: list[str] = []
    behind = ExitStack()

    def see(what: str) -> None:
        assert not behind.enter_context(measuring()).wait(0.1)
        held.append(what)

    def fit(config: dict[str, Any], directory: Path) -> fakes.Outcome:
        see("training")
        return fakes.fit(config, directory)

    def replay(config: dict[str, Any], directory: Path) -> None:
        see("probes")

    trial = fakes.trial(tmp_path / "journal", probes={"p": {}})
    execute(trial, Store(tmp_path / "runs"), fakes.PROVENANCE, Work(fit, replay, fakes.CorruptCheckpoint))
    assert held == ["training", "probes"]
    behind.close()
    with alone():
        pass


def test_a_trial_of_times_that_was_named_on_another_machine_is_refused_and_recorded(tmp_path: Path) -> None:
    trial = replace(fakes.trial(tmp_path / "journal"), environment={"hardware": "another machine"})
    store = Store(tmp_path / "runs")
    assert real_work().require is require_as_named
    with pytest.raises(UsageError, match=r"times are of one machine, but this is .* was named on another machine"):
        execute(trial, store, fakes.PROVENANCE, replace(fakes.WORK, require=require_as_named))
    record = store.read(trial.id)
    assert record is not None and record.status == "failed" and "another machine" in str(record.reason)
    require_as_named(replace(trial, environment={"hardware": hardware("cpu")}))
