"""The trial store: one folder per trial under `runs_dir/trials`; the only place that results come from."""

from __future__ import annotations

import logging
import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from swapformer.errors import UsageError, quote
from swapformer.results import lock as locks
from swapformer.results.files import SET_ASIDE, CorruptFile, clear_temporaries, temporary_of
from swapformer.results.history import history_path
from swapformer.results.manifest import manifest_path
from swapformer.results.record import CORRUPT, MISSING, Record, read_record, record_path, write_record
from swapformer.results.trial_files import current_record, repair, status_of

log = logging.getLogger(__name__)


class Store:
    """Records of trials by id. Raises UsageError when `runs_dir` is there and is no directory that can be read.

    Reading never trains, waits or writes, and a trial whose record is damaged has the status `corrupt`, and why.
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
        """The folders of the studies that were run here, by name; those of an exercise's parts are in its folder."""
        return sorted(path.parent for at in ("*", "*/*") for path in self.studies.glob(str(manifest_path(Path(at)))))

    def study_name(self, folder: Path) -> str:
        """The name of the study in a folder, such as `04_head_count/width`."""
        return folder.relative_to(self.studies).as_posix()

    def read(self, trial: str) -> Record | None:
        """The record of a trial; None when it has none.

        “running” without a living holder is returned as “killed”, and one that cannot be read as “corrupt”.
        """
        return self._read(trial, lambda folder: current_record(folder, self._locked))

    def peek(self, trial: str) -> Record | None:
        """The record as it was last written, without asking whether its process lives."""
        return self._read(trial, read_record)

    def _read(self, trial: str, reader: Callable[[Path], Record | None]) -> Record | None:
        try:
            return reader(self.directory(trial))
        except (CorruptFile, UsageError) as error:
            return Record(trial, CORRUPT, reason=f"{record_path(self.directory(trial)).name}: {error}")

    def repair(self, trial: str) -> None:
        """Set aside what is damaged of a trial that is to be run; only the holder of its lock may call this.

        Raises UsageError for a record that is no damage, but cannot be read: a newer swapformer's, a forbidden one.
        """
        for line in repair(self.directory(trial)):
            log.warning("trial %s: %s; the trial is redone", trial, line)

    def write(self, record: Record) -> None:
        """Store `record` atomically; only the holder of the trial's lock may call this."""
        write_record(self.directory(record.id), record)

    def age(self, trial: str) -> float:
        """Seconds since the record was written: a running trial writes it when it starts, and then no more."""
        try:
            return max(time.time() - record_path(self.directory(trial)).stat().st_mtime, 0.0)
        except OSError:
            return 0.0

    def unrecorded_seconds(self, trial: str) -> float:
        """Seconds from a trial's record to its newest checkpoint or row of its history.

        So long, at least, a process trained that wrote its record at its start and was killed before its end.
        """
        folder, times = self.directory(trial), list[float]()
        for path in (record_path(folder), history_path(folder), *(folder / "checkpoints").glob("*")):
            with suppress(OSError):
                times.append(path.stat().st_mtime)
        return max(times) - times[0] if times else 0.0

    def status(self, trial: str, record: Record | None) -> str:
        """The status of a trial with this record; without one it is “running” or “missing”."""
        return status_of(self.directory(trial), record, self._locked)

    def locked(self, trial: str) -> bool:
        """Whether a process, this one included, is running the trial."""
        return self._locked(self.directory(trial))

    def _locked(self, folder: Path) -> bool:
        return folder.name in self._held or locks.is_locked(folder)

    def holder(self, trial: str) -> tuple[str, int] | None:
        """The host and the process that last wrote the trial's heartbeat; None if missing."""
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
        """The ids of all trials that have a folder, or something else where one should be, sorted."""
        try:
            with os.scandir(self.trials) as entries:
                return sorted(entry.name for entry in entries if _ID.fullmatch(entry.name) or _is_folder(entry))
        except FileNotFoundError:
            return []

    def records(self) -> list[Record]:
        """All records, oldest first."""
        return sorted(map(self.look, self.ids()), key=lambda record: record.started)

    def look(self, trial: str) -> Record:
        """The record of a trial that is there; one with the reason as well where it has none that can be read."""
        return self.read(trial) or Record(trial, self.status(trial, None), reason="it has no record.json")

    def resolve(self, prefix: str) -> str:
        """The id that starts with `prefix`. Raises UsageError unless there is exactly one."""
        matches = [trial for trial in self.ids() if trial.startswith(prefix)]
        if len(matches) > 1:
            raise UsageError(
                f"the beginning of a trial's id must be unique, but {quote(prefix)} fits {len(matches)} trials"
            )
        if not matches:
            raise UsageError(f"no trial {quote(prefix)} in {self.trials}; `swapformer trials` lists those there are")
        return matches[0]

    def find(self, prefix: str) -> Record:
        """The record of the trial whose id starts with `prefix`. Raises UsageError unless one can be read."""
        found = self.look(self.resolve(prefix))
        if found.status in (CORRUPT, MISSING):
            raise UsageError(f"trial {found.id} has no record that can be read ({found.reason}); train it again")
        return found

    def _unusable(self, error: OSError) -> UsageError:
        return UsageError(
            f"runs_dir must be a directory that can be written, but {self.runs_dir} cannot ({error.strerror}); choose "
            "another with runs_dir=…"
        )


_ID = re.compile("[0-9a-f]{16}")


def last_checkpoint(folder: Path) -> Path:
    """The file in a trial's folder that holds its newest state."""
    return folder / "checkpoints" / "last.ckpt"


def is_trial_id(name: str) -> bool:
    """Whether a name is one that a trial's folder has."""
    return _ID.fullmatch(name) is not None


def _is_folder(entry: os.DirEntry[str]) -> bool:
    """Whether it may be a trial's folder: no temporary one, nor what was set aside of a trial."""
    try:
        return not entry.name.startswith(".") and SET_ASIDE not in entry.name and entry.is_dir()
    except OSError:  # a link to itself
        return False
