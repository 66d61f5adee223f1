"""Runs one command in this process and judges how it ended: clearly, or in one of the ways that are faults."""

from __future__ import annotations

import hashlib
import io
import logging
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

from swapformer.cli import main

CLEAR = "clear"
"""Refused in one line, with status 2."""
WORKED = "worked"
"""Done, with status 0."""
FAILED = "failed"
"""A trial has no result, which one line says, with status 1."""
TRACEBACK = "traceback"
UNCLEAR = "unclear"
"""Refused with another status, in no line or several, or in one that is too long."""
CHANGED = "changed store"
"""A command that was refused, or only reads, has changed what is stored."""
WRONG = "wrong"
"""An answer that calls itself complete and has other verdicts than the undamaged files give."""
SLOW = "slow"
FAULTS = (TRACEBACK, UNCLEAR, CHANGED, WRONG, SLOW)
CLASSES = (CLEAR, WORKED, FAILED, *FAULTS)
LONGEST = 300
"""The most characters of a refusal."""
PATIENCE = 20.0
"""Seconds after which a command counts as slow: any that is tried here takes one, on a busy machine some more."""


@dataclass(frozen=True)
class Ending:
    """How a command ended. `kind`: one of CLASSES. `message`: what it said to the user, or the exception."""

    kind: str
    status: int | None
    out: str
    message: str

    @property
    def said(self) -> str:
        """All that it printed."""
        return self.out + self.message


def run(arguments: Sequence[str], folder: Path, *, reads: bool = False) -> Ending:
    """Run `swapformer ARGUMENTS` in `folder`, whose files must not change if it is refused, or `reads` only."""
    return judge(lambda: main([*arguments]), folder, reads=reads)


def judge(act: Callable[[], int | None], folder: Path, *, reads: bool = False) -> Ending:
    """Run `act`, which returns an exit status as a command does, and judge how it ended."""
    before, since = digest(folder), time.monotonic()
    out, err = io.StringIO(), io.StringIO()
    status: int | None = None
    wrong = ""
    with _inside(folder), redirect_stdout(out), redirect_stderr(err), _log_to(err):
        try:
            status = act() or 0
        except Accepted:
            status = 0
        except SystemExit as end:  # argparse's
            status = end.code if isinstance(end.code, int) else 1
        except Exception as error:
            wrong = f"{type(error).__name__}: {error}"
    seconds = time.monotonic() - since
    lines = [line for line in err.getvalue().splitlines() if line and not line.startswith(("usage:", " "))]
    message = wrong or "\n".join(lines)
    if wrong or "Traceback (most recent call last)" in err.getvalue():
        kind = TRACEBACK
    elif status and (status not in (1, 2) or len(lines) != 1 or len(lines[0]) > LONGEST):
        kind = UNCLEAR
    elif (reads or status == 2) and digest(folder) != before:
        kind = CHANGED
    elif seconds > PATIENCE:
        kind = SLOW
    else:
        kind = (WORKED, FAILED, CLEAR)[status or 0]
    return Ending(kind, status, out.getvalue(), message)


class Accepted(BaseException):
    """Raised where trials would be launched: nothing was wrong with what was asked."""


@contextmanager
def dry() -> Iterator[None]:
    """Commands run up to the first trial that they would train, which counts as done."""

    def launch(trials: Sequence[object], *_: object, **__: object) -> None:
        if trials:
            raise Accepted

    with patch("swapformer.study.run_study.launch_missing", launch), patch("swapformer.train.launch_missing", launch):
        yield


def digest(folder: Path) -> str:
    """sha256 of every path under a folder and of what it is or holds; report folders, which commands write, aside."""
    return hashlib.sha256("\n".join(_entries(folder)).encode(errors="surrogateescape")).hexdigest()


def _entries(folder: Path) -> Iterator[str]:
    for where, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if name != "report")
        for name in [*folders, *sorted(files)]:
            path = Path(where, name)
            if path.is_symlink():
                yield f"{path} → {os.readlink(path)}"
            elif path.is_file():
                yield f"{path} {hashlib.sha256(path.read_bytes()).hexdigest()}"
            else:
                yield f"{path}/"


@contextmanager
def _inside(folder: Path) -> Iterator[None]:
    """The working directory, module path and command line of a command that is started in `folder`."""
    before = os.getcwd()
    os.chdir(folder)
    try:
        with patch.object(sys, "argv", ["swapformer"]), patch.object(sys, "path", [*sys.path]):
            yield
    finally:
        os.chdir(before)


@contextmanager
def _log_to(stream: io.StringIO) -> Iterator[None]:
    """What is logged goes to `stream`, as it would to a terminal: warnings as lines of their own."""
    root, handler = logging.getLogger(), logging.StreamHandler(stream)
    handler.setLevel(logging.WARNING)
    before, root.handlers = root.handlers, [handler]
    try:
        yield
    finally:
        root.handlers = before
