"""The mirror's process, which ends when its standard input does: when the command that started it is done, or dead."""

from __future__ import annotations

import json
import os
import select
import sys
import threading
from pathlib import Path

from swapformer.mirror.follower import Follower, Target
from swapformer.mirror.process import DONE, make_destination, mirror_folder
from swapformer.mirror.study_results import show_studies
from swapformer.results.store import Store

POLL_SECONDS = 2.0
"""Time between two polls of the store."""


class _Pipe:
    """The pipe to the starting command, which hears each problem once. What else is printed goes to the log."""

    def __init__(self) -> None:
        self._reported: set[str] = set()
        self._pipe = os.dup(1)
        os.dup2(2, 1)

    def problem(self, text: str) -> None:
        line = " ".join(text.split())
        if line not in self._reported:
            self._reported.add(line)
            print(line, file=sys.stderr, flush=True)
            self._write(f"\n{line}\n".encode())

    def done(self) -> None:
        self._write(DONE)

    def _write(self, text: bytes) -> None:
        try:
            os.write(self._pipe, text)
        except OSError:
            return  # nobody listens any more


def main(order: Path) -> int:
    """Follow the trials that the file `order` names, which is removed; returns the exit status."""
    asked = json.loads(order.read_text(encoding="utf-8"))
    order.unlink()
    os.nice(10)  # behind every training
    pipe, store = _Pipe(), Store(asked["runs_dir"])
    targets = [Target(**entry) for entry in asked["targets"]]
    destination = make_destination(asked["logger"])
    follower = Follower(targets, store, destination, mirror_folder(store), pipe.problem, pipe.done)
    threading.excepthook = lambda failed: follower.thread_errors.append(failed.exc_value or RuntimeError("a thread"))
    pipe.done()  # it stands: from here on the command's patience counts
    try:
        # Each turn waits for the next poll; standard input has ended once it is ready and has nothing to read.
        while not select.select([0], [], [], POLL_SECONDS)[0] or os.read(0, 1024):
            follower.poll()
        follower.poll()
        show_studies(targets, store, destination, pipe.problem, pipe.done)
    finally:
        follower.close()
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
