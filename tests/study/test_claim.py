"""The claim on a trial: held by one process, free when it ends, and heard of on other hosts."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import time
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from swapformer.results import lock as claims
from swapformer.results.record import Record
from swapformer.results.store import Store

ID = "0123456789abcdef"


@pytest.fixture
def store(tmp_path: Path) -> Store:
    found = Store(tmp_path / "runs")
    found.prepare()
    found.directory(ID).mkdir()
    return found


def test_a_trial_can_be_claimed_once_at_a_time(store: Store) -> None:
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


def test_sigkill_releases_the_claim_and_running_becomes_killed(store: Store) -> None:
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


def test_a_heartbeat_from_the_future_is_no_claim(store: Store) -> None:
    _heartbeat(store, "elsewhere:1", age=-86400)
    assert not store.locked(ID)
    with store.lock(ID) as mine:
        assert mine


def test_a_lock_that_was_moved_away_before_it_was_taken_is_not_the_claim(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What prune does to a trial while another process has opened the lock's file, and not locked it yet."""
    lock, folder = claims._lock, store.directory(ID)
    taken: list[int] = []

    def late(descriptor: int, kind: int, tries: int = 1) -> bool:
        if not taken:
            os.replace(folder, store.trials / ".pruned-x")
        taken.append(os.fstat(descriptor).st_ino)
        return lock(descriptor, kind, tries)

    monkeypatch.setattr(claims, "_lock", late)
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


def test_a_fresh_heartbeat_of_another_host_is_a_claim_although_the_lock_is_free(store: Store) -> None:
    _heartbeat(store, "elsewhere:1", age=5)
    assert store.locked(ID)
    with store.lock(ID) as mine:
        assert not mine
    assert (store.directory(ID) / "heartbeat").exists()


@pytest.mark.parametrize(("host", "age"), [("elsewhere:1", claims.STALE + 1), (claims.host(), 0)])
def test_a_stale_heartbeat_or_one_of_a_dead_process_here_is_no_claim(store: Store, host: str, age: float) -> None:
    _heartbeat(store, host, age)
    assert not store.locked(ID)
    with store.lock(ID) as mine:
        assert mine


def test_the_holder_keeps_its_heart_beating(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claims, "BEAT", 0.01)
    with store.lock(ID):
        first = json.loads((store.directory(ID) / "heartbeat").read_text())["time"]
        deadline = time.monotonic() + 5
        while json.loads((store.directory(ID) / "heartbeat").read_text())["time"] == first:
            assert time.monotonic() < deadline
            time.sleep(0.01)
    assert not (store.directory(ID) / "heartbeat").exists()
