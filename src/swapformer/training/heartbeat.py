"""Heartbeats that the ranks of a trial give to the process that started them.

Everything lies in one folder that is deleted when they have ended: the trial's configuration, the heartbeat and the
report of each rank, and a pipe that the starting process holds open.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import threading
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PERIOD = 0.5
"""Seconds between two heartbeats."""

CONFIG, PIPE = "config", "alive"

HEARTBEAT_SIZE, REPORT_SIZE = 128, 64 * 1024
"""Bytes that are reserved for a heartbeat, and for the report of a rank."""


def heartbeat_file(folder: Path, rank: int) -> Path:
    """The file of a rank's heartbeat."""
    return folder / f"rank-{rank}"


def report_file(folder: Path, rank: int) -> Path:
    """The file of a rank's report: its outcome or its error."""
    return folder / f"report-{rank}"


def read(path: Path) -> Any:
    """The values that were written to a file; None where they are missing or incomplete."""
    try:
        check, _, text = path.read_bytes().partition(b"\n")[0].partition(b" ")
    except FileNotFoundError:
        return None
    return json.loads(text) if check == _check(text) else None


def write(path: Path, values: Any) -> None:
    """Put `values` into a file, instead of what was there."""
    sheet = FixedFile(path)
    sheet.write(values)
    sheet.close()


def _check(text: bytes) -> bytes:
    return f"{zlib.crc32(text):08x}".encode()


class FixedFile:
    """A file of fixed size that is overwritten: a disk that fills up later still has room for it.

    A reader may find a new beginning with an old end: the checksum tells, and its next look will do.
    """

    def __init__(self, path: Path, room: int = 0) -> None:
        self._room = room
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
        self._put(b"")

    def write(self, values: Any) -> None:
        """Put `values` there, instead of what was there."""
        text = json.dumps(values).encode()
        self._put(_check(text) + b" " + text + b"\n")

    def close(self) -> None:
        """Give the file back."""
        os.close(self._file)

    def _put(self, text: bytes) -> None:
        text = text.ljust(self._room)  # what is longer needs a disk with room
        if os.pwrite(self._file, text, 0) < len(text):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def end_with_parent(folder: Path) -> None:
    """End this process when the one that made `folder` has ended, or already has; the folder goes too."""
    pipe = os.open(folder / PIPE, os.O_RDONLY | os.O_NONBLOCK)
    os.set_blocking(pipe, True)
    threading.Thread(target=_follow, args=(folder, pipe), name="parent", daemon=True).start()


def _follow(folder: Path, pipe: int) -> None:
    os.read(pipe, 1)  # nothing is ever written: it returns when the last writer is gone
    shutil.rmtree(folder, ignore_errors=True)
    os._exit(1)


@dataclass
class RankHeartbeat:
    """Writes a rank's heartbeat in a thread: that it runs, and how many batches it has been through.

    Counts are written, not times: nobody's clock matters.

    Attributes:
        batches: that this process has trained on or evaluated; the training counts.
    """

    folder: Path
    rank: int
    batches: int = 0

    def start(self) -> None:
        """Begin, and end this process when the one that started it has ended."""
        self._beat_file = FixedFile(heartbeat_file(self.folder, self.rank), HEARTBEAT_SIZE)
        self._report_file = FixedFile(report_file(self.folder, self.rank), REPORT_SIZE)
        self._write(0)
        end_with_parent(self.folder)
        threading.Thread(target=self._beat, name="pulse", daemon=True).start()

    def report(self, values: Any) -> None:
        """Report the rank's outcome or error."""
        self._report_file.write(values)

    def _beat(self) -> None:
        beats, waiting = 0, threading.Event()
        while not waiting.wait(PERIOD):
            beats += 1
            try:
                self._write(beats)
            except OSError:
                continue  # a fault of the disk must not end the training

    def _write(self, beats: int) -> None:
        self._beat_file.write({"pid": os.getpid(), "beats": beats, "batches": self.batches})
