"""The lock on a trial: held by one process, free when it ends, and known to other hosts by its heartbeat."""

from __future__ import annotations

import fcntl
import json
import multiprocessing
import os
import signal
import time
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from report.store import Store as Study
from swapformer.report.records import read
from swapformer.results import lock as locks
from swapformer.results.record import Record
from swapformer.results.store import Store
from swapformer.tools.status import main as status

ID = "0123456789abcdef"


@pytest.fixture
def store(tmp_path: Path) -> Store:
    found = Store(tmp_path / "runs")
    found.prepare()
    found.directory(ID).mkdir()
    return found


def test_a_trial_can_be_locked_once_at_a_time(store: Store) -> None:
    with store.lock(ID) as first, store.lock(ID) as second:
        assert first and not second
    with store.lock(ID) as third:
        assert third


def _hold(runs_dir: Path, pipe: Connection) -> None:
    store = Store(runs_dir)
    with store.lock(ID) as mine:
        store.write(Record(ID, "running", environment={"device": "cpu"}))
        pipe.send(mine)
        time.sleep(60)


def test_sigkill_releases_the_lock_and_running_becomes_killed(store: Store) -> None:
    ours, theirs = multiprocessing.Pipe()
    holder = multiprocessing.get_context("spawn").Process(target=_hold, args=(store.runs_dir, theirs))
    holder.start()
    assert ours.recv()
    assert store.locked(ID)
    running = store.read(ID)
    assert running is not None and running.status == "running"
    with store.lock(ID) as mine:
        assert not mine
    assert holder.pid is not None
    os.kill(holder.pid, signal.SIGKILL)
    holder.join()
    assert not store.locked(ID)
    killed = store.read(ID)
    assert killed is not None and killed.status == "killed"
    with store.lock(ID) as mine:  # the dead holder's heartbeat is of this host: only the lock counts
        assert mine


def _heartbeat(store: Store, host: str, age: float) -> None:
    pulse = {"host": host, "pid": 1, "time": time.time() - age}
    (store.directory(ID) / "heartbeat").write_text(json.dumps(pulse))
    (store.directory(ID) / "lock").touch()


@pytest.mark.parametrize(("age", "held"), [(-86400, False), (-5, True), (5, True), (90, False), (300, False)])
def test_the_lock_the_status_and_the_report_agree_on_whether_another_host_runs_a_trial(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], age: float, held: bool
) -> None:
    """A heartbeat counts while its own time is within 60 s of now; its file was written just now in every case."""
    study = Study(tmp_path, {"a": [], "b": ["x=1"]}, "a", ["val/loss"], seeds=range(1))
    folder = study.write_trial("a", 0, {}, "running", machine={"host": "elsewhere"})
    study.write_manifest()
    (folder / "lock").touch()
    (folder / "heartbeat").write_text(json.dumps({"host": "elsewhere:1", "pid": 1, "time": time.time() - age}))
    assert locks.is_locked(folder) is held
    assert status([f"runs_dir={study.runs}", study.name, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["arms"]["a"] == {"running" if held else "killed": 1}
    assert read(study.study, study.runs).cells["status"][0] == ("running" if held else "killed")
    with Store(study.runs).lock(folder.name) as mine:
        assert mine is not held


def test_asking_whether_a_trial_is_locked_leaves_it_free(tmp_path: Path) -> None:
    (tmp_path / "lock").write_text("x")
    assert not locks.is_locked(tmp_path)
    with (tmp_path / "lock").open("r+") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        assert locks.is_locked(tmp_path)
    assert (tmp_path / "lock").read_text() == "x"


def test_a_lock_that_was_moved_away_before_it_was_taken_is_not_the_lock(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What prune does to a trial while another process has opened the lock's file, and not locked it yet."""
    flock, folder = locks._flock, store.directory(ID)
    taken: list[int] = []

    def late(descriptor: int, kind: int, tries: int = 1) -> bool:
        if not taken:
            os.replace(folder, store.trials / ".pruned-x")
        taken.append(os.fstat(descriptor).st_ino)
        return flock(descriptor, kind, tries)

    monkeypatch.setattr(locks, "_flock", late)
    with store.lock(ID) as first:
        assert first and len(taken) == 2
        assert os.stat(folder / "lock").st_ino == taken[1]
        with Store(store.runs_dir).lock(ID) as second:
            assert not second


def test_a_holder_that_moves_its_folder_away_leaves_the_next_one_its_heartbeat(store: Store) -> None:
    with store.lock(ID):
        os.replace(store.directory(ID), store.trials / ".pruned-x")
        heir = Store(store.runs_dir).lock(ID)
        assert heir.__enter__()
    assert (store.directory(ID) / "heartbeat").exists()
    heir.__exit__(None, None, None)


def test_a_fresh_heartbeat_of_another_host_locks_although_the_kernel_lock_is_free(store: Store) -> None:
    _heartbeat(store, "elsewhere:1", age=5)
    assert store.locked(ID)
    with store.lock(ID) as mine:
        assert not mine
    assert (store.directory(ID) / "heartbeat").exists()


def test_of_two_hosts_that_take_over_an_old_heartbeat_one_gets_the_trial(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other has looked at the old one, and goes on once the first has written its own."""
    folder, got = store.directory(ID), {}
    _heartbeat(store, "gone:1", age=locks.STALE + 1)
    look = locks._locked_by_another_host

    def overtaken(place: Path) -> bool:
        free = not look(place)
        monkeypatch.setattr(locks, "_locked_by_another_host", look)
        with monkeypatch.context() as there:
            there.setattr(locks, "host", lambda: "first:1")
            got["first"] = locks._start_beating(place)
        return not free

    monkeypatch.setattr(locks, "_locked_by_another_host", overtaken)
    got["second"] = locks._start_beating(folder)
    assert got == {"first": True, "second": False}
    assert json.loads((folder / "heartbeat").read_text())["host"] == "first:1"
    assert not [path for path in folder.iterdir() if path.name.startswith(".tmp")]


@pytest.mark.parametrize(("host", "age"), [("elsewhere:1", locks.STALE + 1), (locks.host(), 0)])
def test_a_stale_heartbeat_or_one_of_a_dead_process_here_is_no_lock(store: Store, host: str, age: float) -> None:
    _heartbeat(store, host, age)
    assert not store.locked(ID)
    with store.lock(ID) as mine:
        assert mine


def test_the_holder_keeps_its_heart_beating(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locks, "BEAT", 0.01)
    with store.lock(ID):
        first = json.loads((store.directory(ID) / "heartbeat").read_text())["time"]
        deadline = time.monotonic() + 5
        while json.loads((store.directory(ID) / "heartbeat").read_text())["time"] == first:
            assert time.monotonic() < deadline
            time.sleep(0.01)
    assert not (store.directory(ID) / "heartbeat").exists()
