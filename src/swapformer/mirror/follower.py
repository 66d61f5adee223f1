"""Follows trials while they run, by reading what they leave in the store, and shows them at a destination."""

from __future__ import annotations

import fcntl
import json
import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from swapformer.mirror.base import Destination, ReportProblem, Run, RunInfo
from swapformer.mirror.heatmaps import draw_heatmaps, probe_numbers
from swapformer.results import record as records
from swapformer.results.artifacts import artifact_times
from swapformer.results.config import read_config
from swapformer.results.history import HistoryTail
from swapformer.results.manifest import manifest_path
from swapformer.results.record import Record
from swapformer.results.store import Store
from swapformer.results.trial_index import Member, members

MAX_FAILURES = 2
"""How often a trial may go wrong before its run is given up."""
Fingerprint = list[Any]


@dataclass(frozen=True)
class Target:
    """A trial that is to be shown, and what for; `study` and `arm` are empty for a trial on its own.

    A study that tunes or looks decides as it goes which trials it reports: a target is shown once the study's manifest
    names it. `probes`: those that are asked of it, each with the key of its settings; None for whatever it has.
    """

    trial: str
    study: str = ""
    arm: str = ""
    condition: str = ""
    probes: Mapping[str, str] | None = None

    @property
    def cell(self) -> Member:
        """Its arm and condition in its study."""
        return Member(self.study, self.arm, self.condition)


class Follower:
    """Shows the trials in `targets` at `destination`; `poll` does what there is to do now.

    `folder`: where the states of trials are kept, and the destination's own files. `report_problem`: takes problems;
    none of them ends the following. `done`: called whenever a run has been closed, or given up. `thread_errors`: what
    threads of the destination have raised; the run that is closed next is not shown.
    """

    def __init__(
        self,
        targets: Sequence[Target],
        store: Store,
        destination: Destination,
        folder: Path,
        report_problem: ReportProblem,
        done: Callable[[], None] = lambda: None,
    ) -> None:
        self.store, self.destination, self.folder = store, destination, folder
        self.report_problem, self.done = report_problem, done
        self._trials = [_TrialFollower(target, self) for target in targets]
        self.thread_errors: list[BaseException] = []
        self.cells: dict[str, list[Member]] = {}
        self._manifests: Sequence[tuple[Path, int]] = ()

    def poll(self) -> None:
        """Show what is new of every trial that is not shown to its end."""
        manifests = [(path, manifest_path(path).stat().st_mtime_ns) for path in self.store.study_folders()]
        if manifests != self._manifests:
            self._manifests, self.cells = manifests, members(self.store)
        for trial in [trial for trial in self._trials if not trial.over]:
            try:
                trial.poll()
            except Exception as error:
                self.report_problem(f"{type(error).__name__}: {error}")
                trial.restart()
                self.done()  # headway too: it may have been waited for
        self._trials = [trial for trial in self._trials if not trial.over]

    def close(self) -> None:
        """Let go of the runs that are still open: their trials go on without a mirror."""
        for trial in self._trials:
            trial.release()
        with suppress(Exception):
            self.destination.close()


class _TrialFollower:
    def __init__(self, target: Target, follower: Follower) -> None:
        self.target, self.follower, self.over = target, follower, False
        self.directory = follower.store.directory(target.trial)
        self._shown = ShownState(follower.folder / follower.destination.folder_name, target.trial)
        self._run: Run | None = None
        self._history: HistoryTail
        self._failures = 0

    def poll(self) -> None:
        target, store = self.target, self.follower.store
        record = store.read(target.trial)
        if record is None or record.status == records.CORRUPT:
            return
        if target.study and target.cell not in self.follower.cells.get(target.trial, ()):
            return
        ended = record.status != records.RUNNING and not store.locked(record.id)
        if ended:
            record = store.read(record.id) or record  # with what was written before the lock was let go
        fingerprint = fingerprint_of(record, str(target.cell), self.directory)
        if self._run is None and (ended or record.status == records.RUNNING):
            if self._shown.read(self.follower.destination.name) == fingerprint:
                self.over = record.final
                return
            if not self._shown.lock():
                return
            self._open(record)
        if self._run is None:
            return
        for step, values in self._history.rows():
            self._run.log(step, values)
        if ended:
            with tempfile.TemporaryDirectory() as folder:
                drawn = draw_heatmaps(self.directory, Path(folder), target.probes)
                self._run.finish(record, probe_numbers(self.directory, target.probes), drawn)
            if self.follower.thread_errors:
                error = self.follower.thread_errors[0]
                self.follower.thread_errors.clear()
                raise RuntimeError(f"trial {record.id} is not shown: {error}")
            self._run = None
            self._shown.write(self.follower.destination.name, fingerprint)
            self._shown.release()
            self.over = record.final
            self.follower.done()

    def _open(self, record: Record) -> None:
        target, follower = self.target, self.follower
        cells = [str(cell) for cell in follower.cells.get(target.trial, ())]
        config = read_config(self.directory)
        info = RunInfo(target.trial, target.study, target.arm, target.condition, cells, config, record)
        self._run = follower.destination.open(info, follower.folder, follower.report_problem)
        self._history = HistoryTail(self.directory, self._run.first_step)

    def restart(self) -> None:
        """After an error: begin again at the next poll, but not for ever."""
        self._failures += 1
        self.over = self._failures >= MAX_FAILURES
        self.release()

    def release(self) -> None:
        if self._run is not None:
            self._run.abandon()
            self._run = None
        self._shown.release()


def fingerprint_of(record: Record, cell: str, trial: Path) -> Fingerprint:
    """A value that changes with everything of a trial that is worth showing."""
    found = [list(pair) for pair in artifact_times(trial)]
    return [cell, record.status, record.started, record.ended, record.attempts, found]


class ShownState:
    """The file that says which state of a trial a destination shows already, and that locks the trial's run there.

    Two mirrors must not write one run. The lock is the kernel's, and goes with the process.
    """

    def __init__(self, folder: Path, trial: str) -> None:
        self._path = folder / f"{trial}.json"
        self._descriptor: int | None = None

    def lock(self) -> bool:
        """Take the lock; False where another process has it."""
        if self._descriptor is None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o644)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                os.close(descriptor)
                return False
            self._descriptor = descriptor
        return True

    def _read_all(self) -> Mapping[str, Any]:
        try:
            found = json.loads(self._path.read_bytes())
        except (OSError, ValueError):
            return {}
        return found if isinstance(found, dict) else {}

    def read(self, destination: str) -> Fingerprint | None:
        """The state that a destination shows; None if missing, or a crash has cut the file off."""
        found = self._read_all().get(destination)
        return found if isinstance(found, list) else None

    def write(self, destination: str, fingerprint: Fingerprint) -> None:
        """Note the state that a destination shows now; only the holder of the lock may."""
        assert self._descriptor is not None, "the lock is held"
        text = json.dumps({**self._read_all(), destination: fingerprint}).encode()
        os.ftruncate(self._descriptor, 0)  # in place: a file put over it would take the lock away
        os.pwrite(self._descriptor, text, 0)

    def release(self) -> None:
        """Release the lock."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
