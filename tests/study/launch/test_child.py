"""The fork server: what it keeps from trials, what it does not, and that they outlive it."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest

from study import fakes
from study.parents import parent, read, statuses, wait_until
from swapformer.errors import UsageError
from swapformer.results.store import Store
from swapformer.study.launch.child import Child
from swapformer.study.launch.local import POLL, LocalLauncher, short_sockets
from swapformer.study.launch.missing_trials import launch_missing
from swapformer.study.launch.slots import Slot
from swapformer.study.launch.trial import Trial


def launcher(store: Store) -> LocalLauncher:
    return LocalLauncher(store, fakes.PROVENANCE, 2, fakes.WORK)


def pids(journal: Path) -> list[int]:
    return [int(line.split()[1]) for line in journal.read_text().splitlines()] if journal.exists() else []


def server(journal: Path) -> int:
    """The fork server that the first trial comes from."""
    return int(Path(f"/proc/{pids(journal)[0]}/stat").read_text().rpartition(")")[2].split()[1])


linux = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="finds the fork server in /proc")


@linux
def test_the_fork_server_is_in_no_group_of_processes_that_its_launcher_is_in(store: Store, journal: Path) -> None:
    process = parent(store, [{"journal": str(journal), "behaviour": "hang"}])
    wait_until(lambda: len(fakes.runs(journal)) == 1)
    assert os.getpgid(server(journal)) == server(journal) != os.getpgid(process.pid)
    process.send_signal(signal.SIGTERM)
    process.wait(timeout=20)


@linux
def test_trials_keep_their_slots_and_are_run_once_though_the_fork_server_dies(store: Store, journal: Path) -> None:
    entries = [{"journal": str(journal), "seed": seed, "sleep": 1.5} for seed in range(4)]
    process = parent(store, entries)
    trials = [fakes.trial(journal, seed=seed, sleep=1.5) for seed in range(4)]
    wait_until(lambda: len(fakes.runs(journal)) == 2)
    os.kill(server(journal), signal.SIGKILL)
    most = 0
    while process.poll() is None:
        most = max(most, sum(store.locked(trial.id) for trial in trials))
    assert (process.returncode, most) == (0, 2)
    assert statuses(trials, store) == ["finished"] * 4
    assert sorted(fakes.runs(journal)) == sorted(trial.id for trial in trials)


@linux
def test_a_stop_reaches_trials_whose_fork_server_has_died(store: Store, journal: Path) -> None:
    entries = [{"journal": str(journal), "seed": seed, "behaviour": "hang"} for seed in range(2)]
    process = parent(store, entries)
    wait_until(lambda: len(fakes.runs(journal)) == 2)
    os.kill(server(journal), signal.SIGKILL)
    time.sleep(3 * POLL)  # until the launcher has seen it
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=20) != 0
    trials = [fakes.trial(journal, seed=seed, behaviour="hang") for seed in range(2)]
    assert not any(store.locked(trial.id) for trial in trials)
    assert statuses(trials, store) == ["interrupted", "interrupted"]


@linux
@pytest.mark.parametrize("deaf", [False, True])
def test_the_time_limit_holds_for_a_trial_whose_fork_server_has_died(
    store: Store, journal: Path, monkeypatch: pytest.MonkeyPatch, deaf: bool
) -> None:
    monkeypatch.setattr("swapformer.study.launch.child.GRACE", 0.5)
    trial = fakes.trial(journal, behaviour="deaf" if deaf else "hang")
    killed: list[int] = []

    def kill(running: Sequence[Trial]) -> None:
        if fakes.runs(journal) and not killed:
            killed.append(server(journal))
            os.kill(killed[0], signal.SIGKILL)

    launch = launcher(store)
    launch.tick, launch.time_limit = kill, 2 / 60
    launch_missing([trial], store, launch)
    assert len(killed) == len(fakes.runs(journal)) == 1
    found = read(store, trial.id)
    assert found.status == "interrupted" and (found.reason or "").startswith("it ran into the time limit")
    assert (found.reason or "").endswith("and was killed") is deaf


@linux
def test_a_trial_that_dies_after_its_fork_server_was_killed_and_is_tried_again(store: Store, journal: Path) -> None:
    trial = fakes.trial(journal, behaviour="hang once")
    killed: list[int] = []

    def kill(running: Sequence[Trial]) -> None:
        if len(fakes.runs(journal)) == 1 and len(killed) < 2:
            killed.append(pids(journal)[0] if killed else server(journal))
            os.kill(killed[-1], signal.SIGKILL)

    launch = launcher(store)
    launch.tick = kill
    launch_missing([trial], store, launch)
    found = read(store, trial.id)
    assert (found.status, len(killed)) == ("finished", 2)
    assert [note.partition(";")[0] for note in found.notes] == [
        "attempt 1 killed: its process ended after the fork server, which would have said how"
    ]


def test_a_process_whose_server_died_before_it_had_claimed_its_trial_goes_with_it(store: Store, journal: Path) -> None:
    trial = fakes.trial(journal)
    with subprocess.Popen(["sleep", "60"]) as process:
        lost = SimpleNamespace(pid=process.pid, exitcode=255, is_alive=lambda: False, close=lambda: None)
        assert Child(trial, Slot(), lost).has_ended(store)
        assert process.wait(5) == -signal.SIGKILL
    assert read(store, trial.id).status == "killed"


def test_a_trial_knows_which_packages_are_allowed_now_and_not_when_the_server_began(
    store: Store, journal: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = []
    for seed, packages in enumerate(["my_parts", "my_parts,theirs"]):
        monkeypatch.setenv("SWAPFORMER_PACKAGES", packages)
        trial = fakes.trial(journal, seed, "show packages")
        launch_missing([trial], store, launcher(store))
        found.append((store.directory(trial.id) / "packages").read_text())
    assert found == ["my_parts", "my_parts,theirs"]


def test_a_file_in_the_working_directory_stands_for_no_module_of_python_itself(
    store: Store, journal: Path, tmp_path: Path
) -> None:
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "selectors.py").write_text("raise SystemExit('not the one of the standard library')\n")
    process = parent(store, [{"journal": str(journal)}], cwd=tmp_path / "here")
    assert process.wait(timeout=20) == 0
    assert statuses([fakes.trial(journal)], store) == ["finished"]


def test_a_folder_for_temporary_files_may_have_a_long_name(
    store: Store, journal: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / ("x" * 100)
    place.mkdir()
    monkeypatch.setenv("TMPDIR", str(place))
    process = parent(store, [{"journal": str(journal)}])
    assert process.wait(timeout=20) == 0
    assert statuses([fakes.trial(journal)], store) == ["finished"]


def test_a_name_that_is_too_long_for_sockets_is_refused_where_no_other_place_can_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / ("x" * 100)))
    monkeypatch.setattr(os, "access", lambda path, mode: path not in ("/tmp", "/var/tmp"))
    with pytest.raises(UsageError, match=r"TMPDIR must have at most 71 bytes.*xxx; set it to"), short_sockets():
        pass
