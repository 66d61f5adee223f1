"""The machine's lock: trials share it, a measurement has it alone."""

from __future__ import annotations

import tempfile
import threading
from pathlib import Path
from typing import Any

import pytest

from study import fakes
from swapformer.errors import UsageError
from swapformer.study import machine
from swapformer.study.machine import alone, computing, hardware, lock_file
from swapformer.study.store import Store
from swapformer.study.trial import Result, Work, execute


@pytest.fixture(autouse=True)
def own_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A lock of this test alone: the machine's own is for those who measure on it."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert lock_file().parent == tmp_path


def test_trials_run_beside_each_other_and_keep_a_measurement_away() -> None:
    with computing(), computing(), pytest.raises(UsageError, match="trials run on it now"), alone():
        pass
    with alone():
        pass


def test_measurements_keep_each_other_away() -> None:
    with alone(), pytest.raises(UsageError, match="another measurement"), alone():
        pass


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


def test_without_a_place_for_locks_trials_run_and_measurements_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "lock_file", lambda: Path("/nowhere/at/all.lock"))
    ran = False
    with computing():
        ran = True
    assert ran
    with pytest.raises(UsageError, match="set TMPDIR"), alone():
        pass


def test_hardware_is_known_by_what_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    here = hardware("cpu")
    assert here == hardware("cpu") and len(here["key"]) == 12 and here["devices"] == []
    monkeypatch.setattr(machine, "_processor", lambda: "another")
    assert hardware("cpu")["key"] != here["key"] and "another" in hardware("cpu")["name"]


def test_a_trial_holds_the_machine_while_it_trains_and_while_probes_replay(tmp_path: Path) -> None:
    held: list[str] = []

    def see(what: str) -> None:
        with pytest.raises(UsageError), alone():
            pass
        held.append(what)

    def fit(config: dict[str, Any], directory: Path) -> Result:
        see("training")
        return fakes.fit(config, directory)

    def replay(config: dict[str, Any], directory: Path) -> None:
        see("probes")

    trial = fakes.trial(tmp_path / "journal", probes={"p": {}})
    execute(trial, Store(tmp_path / "runs"), fakes.PROVENANCE, Work(fit, replay, fakes.CorruptCheckpoint))
    assert held == ["training", "probes"]
    with alone():
        pass
