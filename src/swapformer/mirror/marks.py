"""What has been shown already, and who is showing it: one small file for each trial, beside the store."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from swapformer.results.artifacts import artifact_times
from swapformer.results.record import Record

Mark = list[Any]


def mark_of(record: Record, place: str, trial: Path) -> Mark:
    """What tells a state of a trial that is worth showing from any other."""
    found = [list(pair) for pair in artifact_times(trial)]
    return [place, record.status, record.started, record.ended, record.attempts, found]


class Marks:
    """The marks of one trial, held by one process at a time: two mirrors must not write one run.

    The lock is the kernel's, and goes with the process.
    """

    def __init__(self, folder: Path, trial: str) -> None:
        self._path = folder / f"{trial}.json"
        self._held: int | None = None

    def hold(self) -> bool:
        """Take them; False where another process has them."""
        if self._held is None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o644)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                os.close(descriptor)
                return False
            self._held = descriptor
        return True

    def read(self, place: str) -> Sequence[Any] | None:
        """The newest mark for a place; None where there is none, or a crash has cut it off."""
        try:
            found = json.loads(self._path.read_bytes())[place]
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return found if isinstance(found, list) else None

    def write(self, place: str, mark: Mark) -> None:
        """Note what has been shown there; only who holds the marks may."""
        assert self._held is not None, "the marks are held"
        try:
            marks = json.loads(self._path.read_bytes())
        except (OSError, ValueError):
            marks = {}
        text = json.dumps({**(marks if isinstance(marks, dict) else {}), place: mark}).encode()
        os.ftruncate(self._held, 0)  # in place: a file put over it would take the lock away
        os.pwrite(self._held, text, 0)

    def release(self) -> None:
        """Let others have them."""
        if self._held is not None:
            os.close(self._held)
            self._held = None
