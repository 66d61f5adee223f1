"""The mirror's process. It ends when its standard input does: when the command that started it is done, or dead."""

from __future__ import annotations

import json
import os
import select
import sys
from pathlib import Path

from swapformer.mirror.follow import Follower, Target
from swapformer.mirror.process import DONE, destination, folder_of
from swapformer.mirror.show import show_studies
from swapformer.results.store import Store

LOOK = 2.0
"""Seconds between looks at the store."""


class _Voice:
    """Tells the starting command what happened: each problem once. What else is printed goes to the log."""

    def __init__(self) -> None:
        self._said: set[str] = set()
        self._pipe = os.dup(1)
        os.dup2(2, 1)

    def problem(self, text: str) -> None:
        line = " ".join(text.split())
        if line not in self._said:
            self._said.add(line)
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
    voice, store = _Voice(), Store(asked["runs_dir"])
    targets = [Target(**entry) for entry in asked["targets"]]
    place = destination(asked["logger"])
    follower = Follower(targets, store, place, folder_of(store), voice.problem, voice.done)
    try:
        while not _told_to_end():
            follower.look()
        follower.look()
        show_studies(targets, store, place, voice.problem, voice.done)
    finally:
        follower.close()
    return 0


def _told_to_end() -> bool:
    """Waits for the next look; True as soon as standard input has ended."""
    return bool(select.select([0], [], [], LOOK)[0]) and not os.read(0, 1024)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
