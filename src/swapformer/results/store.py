"""The trial store: one folder per trial under `runs_dir/trials`; the only place that results come from."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from swapformer.errors import UsageError
from swapformer.results import record as records
from swapformer.results.files import clear_temporaries, set_aside, temporary_of, write_atomic
from swapformer.results.lock import claim, holder, is_claimed
from swapformer.results.record import CorruptRecord, Record

log = logging.getLogger(__name__)


class Store:
    """Records of trials by id.

    Reading never trains, waits or writes, except that a damaged record is set aside (and the trial counts as missing).

    Raises:
        UsageError: when `runs_dir` is there and is no directory that can be read.
    """

    def __init__(self, runs_dir: str | Path) -> None:
        self.runs_dir = Path(runs_dir).absolute()
        self.trials = self.runs_dir / "trials"
        self.studies = self.runs_dir / "studies"
        self._held: set[str] = set()
        try:
            os.scandir(self.trials).close()
        except FileNotFoundError:
            pass  # the first trial makes it
        except OSError as error:
            raise self._unusable(error) from error

    @property
    def exists(self) -> bool:
        """Whether anything was ever run in `runs_dir`."""
        return self.trials.is_dir()

    def prepare(self) -> None:
        """Make the store's folders. Raises UsageError when `runs_dir` cannot be written."""
        try:
            for folder in (self.trials, self.studies):
                folder.mkdir(parents=True, exist_ok=True)
                probe = temporary_of(folder / "probe")
                probe.touch()
                probe.unlink()
        except OSError as error:
            raise self._unusable(error) from error

    def directory(self, trial: str) -> Path:
        """The folder of a trial, whether it exists or not."""
        return self.trials / trial

    def read(self, trial: str) -> Record | None:
        """The record of a trial; None when it has none. “running” without a living holder is returned as “killed”."""
        found = self.peek(trial)
        if found is None or found.status != records.RUNNING or self.claimed(trial):
            return found
        found = self.peek(trial)  # it may have ended between the two looks
        if found is None or found.status != records.RUNNING:
            return found
        return found.but(status=records.KILLED, reason=found.reason or "its process ended without a word")

    def peek(self, trial: str) -> Record | None:
        """The record as it was last written, without asking whether its process lives."""
        path = self.directory(trial) / "record.json"
        try:
            return records.parse(path.read_bytes(), trial)
        except FileNotFoundError:
            return None
        except CorruptRecord as error:
            self._set_aside(trial, path, str(error))
            return None

    def write(self, record: Record) -> None:
        """Store `record` atomically; only the holder of the trial's claim may call this."""
        write_atomic(self.directory(record.id) / "record.json", record.to_json())

    def claimed(self, trial: str) -> bool:
        """Whether a process, this one included, is running the trial."""
        return trial in self._held or is_claimed(self.directory(trial))

    def holder(self, trial: str) -> tuple[str, int] | None:
        """The host and the process that have last said that they run the trial; None where none says so."""
        return holder(self.directory(trial))

    @contextmanager
    def claim(self, trial: str) -> Iterator[bool]:
        """Hold the claim on a trial; yields False when another process has it."""
        folder = self.directory(trial)
        with claim(folder) as mine:
            if mine:
                self._held.add(trial)
                clear_temporaries(folder)
            try:
                yield mine
            finally:
                if mine:
                    self._held.discard(trial)

    def probed(self, trial: str, probe: str) -> Any:
        """The settings that a probe of a trial was replayed with; None when it was not, or its artifact is damaged."""
        try:
            return json.loads((self.directory(trial) / "artifacts" / f"{probe}.json").read_bytes())["settings"]
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def ids(self) -> list[str]:
        """The ids of all trials that have a folder, sorted."""
        try:
            with os.scandir(self.trials) as entries:
                return sorted(entry.name for entry in entries if not entry.name.startswith(".") and entry.is_dir())
        except FileNotFoundError:
            return []

    def records(self) -> list[Record]:
        """All records, oldest first."""
        found = (self.read(trial) for trial in self.ids())
        return sorted((record for record in found if record is not None), key=lambda record: record.started)

    def find(self, prefix: str) -> Record:
        """The record of the trial whose id starts with `prefix`. Raises UsageError unless there is exactly one."""
        matches = [trial for trial in self.ids() if trial.startswith(prefix)]
        if len(matches) > 1:
            raise UsageError(f"the beginning of a trial's id must be unique, but {prefix!r} fits {len(matches)} trials")
        found = self.read(matches[0]) if matches else None
        if found is None:
            raise UsageError(f"no trial {prefix!r} in {self.trials}; `swapformer trials` lists those that are there")
        return found

    def _unusable(self, error: OSError) -> UsageError:
        return UsageError(
            f"runs_dir must be a directory that can be written, but {self.runs_dir} cannot ({error.strerror}); choose "
            "another with runs_dir=…"
        )

    def _set_aside(self, trial: str, path: Path, why: str) -> None:
        """Writes are atomic, so damage is no write in progress; the claim keeps a fresh record from being moved."""
        if trial not in self._held:
            with self.claim(trial) as mine:
                if mine:
                    self.peek(trial)
            return
        aside = set_aside(path)
        log.warning("record of trial %s is corrupt (%s): set aside as %s; the trial is redone", trial, why, aside.name)
