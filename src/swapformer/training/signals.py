"""Signals that ask a process to stop (SIGINT, SIGTERM), noted instead of obeyed at once."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class SigtermReceived(BaseException):
    """SIGTERM arrived. Like KeyboardInterrupt it is no Exception, so that nothing swallows it on the way."""


class RaiseOnce:
    """A handler of SIGTERM that raises SigtermReceived the first time: a second one must not break off the stop.

    Python drops what is raised within a finaliser or a callback of C, so a training asks for `received` as well.
    """

    received = False

    def __call__(self, number: int, frame: FrameType | None) -> None:
        first, self.received = not self.received, True
        if first:
            raise SigtermReceived


class StopRequest:
    """Remembers whether the process was asked to stop: the signal's name, or None."""

    requested: str | None = None

    def listen(self) -> None:
        """Take SIGINT and SIGTERM, also from a handler that was set later; only the main thread can."""
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                signal.signal(number, self._note)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.requested and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.requested = signal.Signals(number).name


@contextmanager
def stop_on_signals() -> Iterator[StopRequest]:
    """Note SIGINT and SIGTERM instead of dying of them; a second SIGINT ends the process the usual way.

    Only the main thread can do so; in another one nothing is noted.
    """
    stop = StopRequest()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return

    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    stop.listen()
    if isinstance(terminate := before[signal.SIGTERM], RaiseOnce) and terminate.received:
        stop.requested = signal.SIGTERM.name  # it was raised where nobody could see it
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
