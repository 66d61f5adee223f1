"""Signals that stop a trial or a launcher: raised, deferred, collected or blocked."""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import resource_tracker
from types import FrameType
from typing import Any

from swapformer.training.signals import RaiseOnce

log = logging.getLogger(__name__)

ORPHANED = threading.Event()
"""Set in a trial's process once the one that started it is gone: the stop that follows was not asked for."""


@contextmanager
def sigterm_raises() -> Iterator[None]:
    """Make the first SIGTERM raise SigtermReceived, in the main thread: no other may set handlers."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    terminate, interrupt = signal.signal(signal.SIGTERM, RaiseOnce()), signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, terminate)
        signal.signal(signal.SIGINT, interrupt)  # Lightning leaves it ignored after a first one


@contextmanager
def deferred_signals() -> Iterator[None]:
    """Keep SIGTERM and SIGINT waiting, so that what was begun is also written down.

    Processes that are started within do not get them either. Another thread may take them all the same (torch has
    some), and Python then runs the handler here: in the main thread it is another one meanwhile.
    """
    came: list[int] = []
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT})
    handlers: dict[int, Any] = {}
    if threading.current_thread() is threading.main_thread():
        for stop in (signal.SIGTERM, signal.SIGINT):
            handlers[stop] = signal.signal(stop, lambda number, frame: came.append(number))
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        for number in dict.fromkeys(came):
            signal.raise_signal(number)


@contextmanager
def collected_signals() -> Iterator[list[int]]:
    """Collect SIGINT and SIGTERM in a list instead of dying of them; the loop of the launcher acts on it."""
    stops: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        stops.append(number)
        if len(stops) == 1:
            log.warning("stopping: waiting for the running trials to end (once more to kill them)")

    before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stops
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def blocked_signals() -> Iterator[None]:
    """Processes started within never see SIGTERM, SIGUSR1 and SIGUSR2, unless they unblock them.

    A scheduler that stops a job signals every process of it, the fork server too: its death would look like the death
    of all trials. Signals that arrive in between wait.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1, signal.SIGUSR2})
    try:
        resource_tracker.ensure_running()  # it unblocks SIGTERM, so it must not come within
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def unblock_sigterm() -> None:
    """Let SIGTERM stop a process that was started within `blocked_signals`."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
