"""Signs of life that the ranks of a trial give to the process that started them.

Everything lies in one folder that is gone when they have ended: the trial's configuration, a sign of life of each rank,
what each has come to, and a pipe that the starting process holds open.
"""

from __future__ import annotations

import json
import os
import shutil
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PERIOD = 0.5
"""Seconds between two signs of life."""

CONFIG, PIPE = "config.json", "alive"


def signs(place: Path, rank: int) -> Path:
    """The file of a rank's signs of life."""
    return place / f"rank-{rank}.json"


def report(place: Path, rank: int) -> Path:
    """The file that says what a rank has come to."""
    return place / f"report-{rank}.json"


def read(path: Path) -> dict[str, Any] | None:
    """What a file says; None where there is none yet."""
    try:
        found: dict[str, Any] = json.loads(path.read_bytes())
    except (FileNotFoundError, ValueError):
        return None
    return found


def write(path: Path, values: Any) -> None:
    """Replace a file by other values, whole."""
    draft = path.with_suffix(".tmp")
    draft.write_text(json.dumps(values), encoding="utf-8")
    draft.replace(path)


def end_with_parent(place: Path) -> None:
    """End this process when the one that made `place` has ended, or already has; the folder goes too."""
    pipe = os.open(place / PIPE, os.O_RDONLY | os.O_NONBLOCK)
    os.set_blocking(pipe, True)
    threading.Thread(target=_follow, args=(place, pipe), name="parent", daemon=True).start()


def _follow(place: Path, pipe: int) -> None:
    os.read(pipe, 1)  # nothing is ever written: it returns when the last writer is gone
    shutil.rmtree(place, ignore_errors=True)
    os._exit(1)


@dataclass
class Pulse:
    """A rank's signs of life, which a thread of its own writes: that it runs, and how many batches it has been through.

    Counts are written, not times: nobody's clock matters.

    Attributes:
        batches: that this process has trained on or evaluated; the training counts.
    """

    place: Path
    rank: int
    batches: int = 0

    def start(self) -> None:
        """Begin, and end this process when the one that started it has ended."""
        self._write(0)
        end_with_parent(self.place)
        threading.Thread(target=self._beat, name="pulse", daemon=True).start()

    def _beat(self) -> None:
        beats, waiting = 0, threading.Event()
        while not waiting.wait(PERIOD):
            beats += 1
            try:
                self._write(beats)
            except OSError:
                continue  # a full disk must not end the training

    def _write(self, beats: int) -> None:
        write(signs(self.place, self.rank), {"pid": os.getpid(), "beats": beats, "batches": self.batches})
