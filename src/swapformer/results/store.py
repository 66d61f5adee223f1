"""The trial store: one folder per trial under `runs_dir/trials`; the only place that results come from."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from swapformer.errors import UsageError
from swapformer.results import lock as locks
from swapformer.results.files import clear_temporaries, quarantine, temporary_of
from swapformer.results.manifest import manifest_path
from swapformer.results.record import CorruptRecord, Record, read_record, record_path, write_record
from swapformer.results.trial_files import current_record, status_of

log = logging.getLogger(__name__)


class Store:
    """Records of trials by id. Raises UsageError when `runs_dir` is there and is no directory that can be read.

    Reading never trains, waits or writes, except that a damaged record is set aside (and the trial counts as missing).
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

    def study_folders(self) -> list[Path]:
        """The folders of the studies that were run here, by name."""
        return sorted(path.parent for path in self.studies.glob(str(manifest_path(Path("*")))))

    def read(self, trial: str) -> Record | None:
        """The record of a trial; None when it has none. “running” without a living holder is returned as “killed”."""
        try:
            return current_record(self.directory(trial), self._locked)
        except CorruptRecord as error:
            self._quarantine(trial, str(error))
            return None

    def peek(self, trial: str) -> Record | None:
        """The record as it was last written, without asking whether its process lives."""
        try:
            return read_record(self.directory(trial))
        except CorruptRecord as error:
            self._quarantine(trial, str(error))
            return None

    def write(self, record: Record) -> None:
        """Store `record` atomically; only the holder of the trial's lock may call this."""
        write_record(self.directory(record.id), record)

    def age(self, trial: str) -> float:
        """Seconds since the record was written: a running trial writes it when it starts, and then no more."""
        try:
            return max(time.time() - record_path(self.directory(trial)).stat().st_mtime, 0.0)
        except OSError:
            return 0.0

    def status(self, trial: str, record: Record | None) -> str:
        """The status of a trial with this record; without one it is “running” or “missing”."""
        return status_of(self.directory(trial), record, self._locked)

    def locked(self, trial: str) -> bool:
        """Whether a process, this one included, is running the trial."""
        return self._locked(self.directory(trial))

    def _locked(self, folder: Path) -> bool:
        return folder.name in self._held or locks.is_locked(folder)

    def holder(self, trial: str) -> tuple[str, int] | None:
        """The host and the process that last wrote the trial's heartbeat; None where there is none."""
        return locks.holder(self.directory(trial))

    @contextmanager
    def lock(self, trial: str) -> Iterator[bool]:
        """Hold the lock on a trial; yields False when another process has it."""
        folder = self.directory(trial)
        with locks.lock(folder) as mine:
            if mine:
                self._held.add(trial)
                clear_temporaries(folder)
            try:
                yield mine
            finally:
                if mine:
                    self._held.discard(trial)

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

    def _quarantine(self, trial: str, why: str) -> None:
        """Writes are atomic, so damage is no write in progress; the lock keeps a fresh record from being moved."""
        if trial not in self._held:
            with self.lock(trial) as mine:
                if mine:
                    self.peek(trial)
            return
        moved = quarantine(record_path(self.directory(trial)))
        log.warning("record of trial %s is corrupt (%s): set aside as %s; the trial is redone", trial, why, moved.name)
