"""Shows trials while they run, by reading what they leave in the store."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from swapformer.mirror.base import Destination, Page, Run, Say
from swapformer.mirror.marks import Mark, Marks, mark_of
from swapformer.mirror.pictures import draw, numbers
from swapformer.results import record as records
from swapformer.results.config import read_config
from swapformer.results.history import HistoryTail
from swapformer.results.manifest import manifest_path
from swapformer.results.record import Record
from swapformer.results.store import Store
from swapformer.results.trial_index import Member, members

TRIES = 2
"""How often a trial is begun anew after something went wrong with its run."""


@dataclass(frozen=True)
class Target:
    """A trial that is to be shown, and what for; `study` and `arm` are empty for a trial on its own.

    What a study will report, one that tunes or looks decides as it goes: a target is shown once the study's manifest
    names it.
    """

    trial: str
    study: str = ""
    arm: str = ""
    condition: str = ""

    @property
    def place(self) -> Member:
        """Where it stands in its study."""
        return Member(self.study, self.arm, self.condition)


class Follower:
    """Shows the trials in `targets` at `place`: `look` does what there is to do now.

    Args:
        folder: where the marks are kept, and the place's own files.
        say: takes problems. None of them ends the following.
        done: called whenever a run has been closed, or given up.
    """

    def __init__(
        self,
        targets: Sequence[Target],
        store: Store,
        place: Destination,
        folder: Path,
        say: Say,
        done: Callable[[], None] = lambda: None,
    ) -> None:
        self.store, self.place, self.folder, self.say, self.done = store, place, folder, say, done
        self._trials = [_Followed(target, self) for target in targets]
        self.places: dict[str, list[Member]] = {}
        self._manifests: Sequence[tuple[Path, int]] = ()

    def look(self) -> None:
        """Show what is new of every trial that is not shown to its end."""
        self._read_places()
        for trial in [trial for trial in self._trials if not trial.over]:
            try:
                trial.look()
            except Exception as error:
                self.say(f"{type(error).__name__}: {error}")
                trial.give_up()
                self.done()  # headway too: it may have been waited for
        self._trials = [trial for trial in self._trials if not trial.over]

    def _read_places(self) -> None:
        """Read the manifests again where one has changed."""
        found = [(path, manifest_path(path).stat().st_mtime_ns) for path in self.store.study_folders()]
        if found != self._manifests:
            self._manifests, self.places = found, members(self.store)

    def close(self) -> None:
        """Let go of the runs that are still open: their trials go on without a mirror."""
        for trial in self._trials:
            trial.let_go()
        with suppress(Exception):
            self.place.close()


class _Followed:
    def __init__(self, target: Target, follower: Follower) -> None:
        self.target, self.follower, self.over = target, follower, False
        self.directory = follower.store.directory(target.trial)
        self._marks = Marks(follower.folder, target.trial)
        self._run: Run | None = None
        self._history: HistoryTail
        self._failures = 0

    def look(self) -> None:
        record = self.follower.store.read(self.target.trial)
        if record is None or not self._asked_for():
            return
        ended = record.status != records.RUNNING and not self.follower.store.locked(record.id)
        if ended:
            record = self.follower.store.read(record.id) or record  # with what was written before the lock was let go
        mark = mark_of(record, str(self.target.place), self.directory)
        if self._run is None and (ended or record.status == records.RUNNING):
            if self._marks.read(self.follower.place.name) == mark:
                self.over = record.final
                return
            if not self._marks.hold():
                return
            self._open(record)
        if self._run is None:
            return
        for step, values in self._history.rows():
            self._run.log(step, values)
        if ended:
            self._finish(record, mark)

    def _asked_for(self) -> bool:
        target = self.target
        return not target.study or target.place in self.follower.places.get(target.trial, ())

    def _open(self, record: Record) -> None:
        target, follower = self.target, self.follower
        places = [str(place) for place in follower.places.get(target.trial, ())]
        page = Page(
            target.trial, target.study, target.arm, target.condition, places, read_config(self.directory), record
        )
        self._run = follower.place.open(page, follower.folder, follower.say)
        self._history = HistoryTail(self.directory, self._run.first_step)

    def _finish(self, record: Record, mark: Mark) -> None:
        assert self._run is not None, "it has been opened"
        with tempfile.TemporaryDirectory() as folder:
            self._run.finish(record, numbers(self.directory), draw(self.directory, Path(folder)))
        self._run = None
        self._marks.write(self.follower.place.name, mark)
        self._marks.release()
        self.over = record.final
        self.follower.done()

    def give_up(self) -> None:
        """After an error: begin anew at the next look, but not for ever."""
        self._failures += 1
        self.over = self._failures >= TRIES
        self.let_go()

    def let_go(self) -> None:
        if self._run is not None:
            self._run.abandon()
            self._run = None
        self._marks.release()
