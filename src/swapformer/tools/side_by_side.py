"""Several studies at a time: workers that each run one study after the other, with a share of the machine's cores."""

from __future__ import annotations

import multiprocessing
import os
import sys
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass
from functools import partial
from io import StringIO
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from swapformer.console import FAILED, guarded
from swapformer.errors import UsageError
from swapformer.study.launch.local import hidden_script

Run = Callable[[Path, int], None]
"""Runs the study of a path in the worker of a number."""


@dataclass(frozen=True)
class Answer:
    """The outcome of one study: exit status, what it printed, and whether it was interrupted."""

    name: str
    status: int
    printed: str
    said: str
    interrupted: bool = False


def attempt(run: Callable[[], None], debug: bool) -> tuple[int, bool]:
    """Run a study so that a failure of it loses no other: exit status, and whether Ctrl-C ended it."""
    interrupted = False

    def one() -> None:
        nonlocal interrupted
        try:
            run()
        except KeyboardInterrupt:
            interrupted = True
            raise

    try:
        return guarded(one, debug), interrupted
    except Exception:
        traceback.print_exc()
        return FAILED, interrupted


def side_by_side(studies: Mapping[str, Path], run: Run, count: int, debug: bool) -> Iterator[Answer]:
    """The answers of studies as they come, `count` at a time; `run` must be importable where a worker starts.

    A first Ctrl-C is passed on to the workers, whose trials keep their checkpoints, and ends all studies.
    """
    context = multiprocessing.get_context("spawn")
    waiting = deque(studies.items())
    workers: dict[Connection, Any] = {}
    try:
        for number in range(min(count, len(studies))):
            ours, theirs = context.Pipe()
            worker = context.Process(target=_work, args=(theirs, run, number, debug, os.getcwd()))
            with hidden_script():
                worker.start()
            theirs.close()
            workers[ours] = worker
            ours.send(waiting.popleft())
        while workers:
            for each in wait(list(workers)):
                assert isinstance(each, Connection), "only pipes are waited for"
                try:
                    answer: Answer = each.recv()
                except EOFError:
                    raise UsageError("a worker of --studies was killed; the same command continues from here") from None
                if waiting and not answer.interrupted:
                    each.send(waiting.popleft())
                else:
                    workers.pop(each).join(0)
                    each.close()
                yield answer
                if answer.interrupted:
                    return
    finally:
        for each in workers:
            each.close()
        for worker in workers.values():
            worker.terminate()  # its launcher stops its trials
        for worker in workers.values():
            worker.join()


def _work(studies: Connection, run: Run, number: int, debug: bool, folder: str) -> None:
    """A worker: it runs what it is sent, until nothing more comes."""
    os.chdir(folder)  # where the command is, not where its process began
    os.setsid()  # Ctrl-C reaches the command alone, which passes it on once
    printed, said = StringIO(), StringIO()
    with redirect_stdout(printed), redirect_stderr(said), suppress(EOFError, OSError):
        while True:
            name, path = studies.recv()
            for text in (printed, said):
                text.seek(0)
                text.truncate()
            status, interrupted = attempt(partial(run, path, number), debug)
            sys.stdout.flush()
            studies.send(Answer(name, status, printed.getvalue(), said.getvalue(), interrupted))
