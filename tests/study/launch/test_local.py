"""The launcher and the loop around it: real processes, real signals, a training of milliseconds."""

from __future__ import annotations

import errno
import os
import signal
import threading
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from study import fakes
from study.parents import parent, statuses, wait_until
from swapformer.results.record import Record, now
from swapformer.results.store import Store
from swapformer.study.launch.local import LocalLauncher
from swapformer.study.launch.missing_trials import launch_missing
from swapformer.study.launch.trial import Trial


def launcher(store: Store, slots: int = 2) -> LocalLauncher:
    return LocalLauncher(store, fakes.PROVENANCE, slots, fakes.WORK)


def test_trials_of_all_fates_are_recorded_and_none_takes_the_others_with_it(store: Store, journal: Path) -> None:
    behaviours = ["finish", "killed", "diverge", "fail", "killed once", "misuse", "exit", "finish"]
    trials = [fakes.trial(journal, seed=seed, behaviour=behaviour) for seed, behaviour in enumerate(behaviours)]
    launch_missing(trials, store, launcher(store))
    expected = ["finished", "killed", "diverged", "failed", "finished", "failed", "interrupted", "finished"]
    assert statuses(trials, store) == expected
    attempts = Counter(fakes.runs(journal))
    assert [attempts[trial.id] for trial in trials] == [1, 2, 1, 1, 2, 1, 1, 1]
    killed = store.read(trials[1].id)
    assert killed is not None and killed.reason is not None and "SIGKILL" in killed.reason
    assert "no such luck" in (store.directory(trials[3].id) / "log.txt").read_text()


def test_a_second_run_trains_only_what_has_no_result(store: Store, journal: Path) -> None:
    trials = [fakes.trial(journal, seed=seed) for seed in range(3)]
    launch_missing(trials, store, launcher(store))
    assert len(fakes.runs(journal)) == 3

    def refuse(missing: Sequence[Trial]) -> None:
        raise AssertionError(missing)

    launch_missing(trials, store, refuse)
    more = [*trials, fakes.trial(journal, seed=3)]
    launch_missing(more, store, launcher(store))
    assert fakes.runs(journal)[3:] == [more[3].id]


def test_what_a_launcher_says_is_not_believed(store: Store, journal: Path, caplog: pytest.LogCaptureFixture) -> None:
    trials = [fakes.trial(journal, seed=seed) for seed in range(2)]

    def half(missing: Sequence[Trial]) -> None:
        launcher(store)(missing[:1])
        raise RuntimeError("connection lost")

    launch_missing(trials, store, half)
    assert statuses(trials, store) == ["finished", "finished"]
    assert caplog.text.count("connection lost") == 2
    assert len(fakes.runs(journal)) == 2


def test_a_launcher_that_does_nothing_is_tried_twice_and_not_for_ever(store: Store, journal: Path) -> None:
    calls: list[int] = []
    trials = [fakes.trial(journal)]
    launch_missing(trials, store, lambda missing: calls.append(len(missing)))
    assert calls == [1, 1]
    assert statuses(trials, store) == ["missing"]


def test_a_trial_that_failed_in_a_process_that_shares_the_work_is_not_tried_again(
    store: Store, journal: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("swapformer.study.launch.missing_trials.POLL", 0.01)
    trial = fakes.trial(journal)
    launched: list[str] = []
    watched = threading.Event()

    def other(claimed: threading.Event) -> None:
        theirs = Store(store.runs_dir)
        with theirs.lock(trial.id):
            claimed.set()
            watched.wait()
            theirs.write(Record(trial.id, "failed", seed=0, started=now()))

    claimed = threading.Event()
    thread = threading.Thread(target=other, args=(claimed,))
    thread.start()
    claimed.wait()
    launch_missing([trial], store, lambda trials: launched.extend(t.id for t in trials), lambda running: watched.set())
    thread.join()
    assert (launched, statuses([trial], store)) == ([], ["failed"])


def test_a_trial_that_failed_before_this_run_is_tried_once_more(store: Store, journal: Path) -> None:
    trials = [fakes.trial(journal, seed, behaviour) for seed, behaviour in enumerate(["finish", "fail"])]
    for trial in trials:
        store.directory(trial.id).mkdir()
        store.write(Record(trial.id, "failed", seed=0, started=now()))
    launch_missing(trials, store, launcher(store))
    assert statuses(trials, store) == ["finished", "failed"]
    assert Counter(fakes.runs(journal)) == {trial.id: 1 for trial in trials}


def test_two_processes_on_one_store_share_the_work_and_train_each_trial_once(store: Store, journal: Path) -> None:
    entries = [{"journal": str(journal), "seed": seed, "sleep": 0.05} for seed in range(12)]
    parents = [parent(store, entries), parent(store, entries)]
    for process in parents:
        assert process.wait(timeout=30) == 0
    trials = [fakes.trial(journal, seed=seed, sleep=0.05) for seed in range(12)]
    assert statuses(trials, store) == ["finished"] * 12
    assert sorted(fakes.runs(journal)) == sorted(trial.id for trial in trials)


def test_children_survive_a_killed_parent_and_a_new_one_shares_and_reuses(store: Store, journal: Path) -> None:
    entries = [{"journal": str(journal), "seed": seed, "sleep": 1.0} for seed in range(4)]
    first = parent(store, entries)
    wait_until(lambda: len(fakes.runs(journal)) == 2)
    os.kill(first.pid, signal.SIGKILL)
    first.wait()
    trials = [fakes.trial(journal, seed=seed, sleep=1.0) for seed in range(4)]
    assert statuses(trials, store).count("running") == 2  # the orphans hold their claims
    launch_missing(trials, store, launcher(store))
    assert statuses(trials, store) == ["finished"] * 4
    assert sorted(fakes.runs(journal)) == sorted(trial.id for trial in trials)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stop_of_the_parent_ends_running_trials_as_interrupted(
    store: Store, journal: Path, number: signal.Signals
) -> None:
    entries = [{"journal": str(journal), "seed": seed, "behaviour": "hang"} for seed in range(3)]
    process = parent(store, entries)
    wait_until(lambda: len(fakes.runs(journal)) == 2)
    os.killpg(process.pid, number)  # as a terminal does: to the whole group; the children have left it
    assert process.wait(timeout=20) != 0
    trials = [fakes.trial(journal, seed=seed, behaviour="hang") for seed in range(3)]
    assert statuses(trials, store) == ["interrupted", "interrupted", "missing"]


def test_a_trial_has_its_own_session_and_the_threads_are_pinned(store: Store, journal: Path) -> None:
    process = parent(store, [{"journal": str(journal), "behaviour": "hang"}])
    wait_until(lambda: len(fakes.runs(journal)) == 1)
    child = int(journal.read_text().split()[1])
    assert os.getsid(child) == child
    environment = Path(f"/proc/{child}/environ")
    if environment.exists():
        assert b"OMP_NUM_THREADS=1" in environment.read_bytes()
    process.send_signal(signal.SIGTERM)
    process.wait(timeout=20)


def test_a_folder_or_a_record_that_cannot_be_written_costs_one_trial_alone(
    store: Store, journal: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    trials = [fakes.trial(journal, seed, behaviour) for seed, behaviour in enumerate(["killed", "finish", "finish"])]
    make, full = Path.mkdir, OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def mkdir(path: Path, *arguments: Any, **named: Any) -> None:
        if path.name == trials[1].id:
            raise full
        make(path, *arguments, **named)

    def write(record: Record) -> None:
        raise full

    monkeypatch.setattr(Path, "mkdir", mkdir)
    monkeypatch.setattr(store, "write", write)
    launcher(store)(trials)
    assert statuses(trials, store) == ["killed", "missing", "finished"]
    assert f"{trials[1].id} could not be started (a file cannot be written: " in caplog.text
    assert "make room for it" in caplog.text
    assert f"the end of trial {trials[0].id} could not be recorded" in caplog.text


def test_a_call_after_one_that_was_broken_off_has_the_slots_that_are_left(store: Store, journal: Path) -> None:
    trials = [fakes.trial(journal, seed, sleep=1.0) for seed in range(4)]
    most = 0

    def watch(running: Sequence[Trial]) -> None:
        nonlocal most
        if not most:
            most = 1
            raise RuntimeError("no such luck")
        most = max(most, len(running))

    launch = launcher(store)
    launch.tick = watch
    launch_missing(trials, store, launch)
    assert (statuses(trials, store), most) == (["finished"] * 4, 2)
