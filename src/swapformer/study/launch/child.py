"""Runs one trial in a child process and records how it ended."""

from __future__ import annotations

import logging
import math
import multiprocessing
import os
import signal
import sys
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from swapformer.errors import UsageError
from swapformer.results import record as records
from swapformer.results.lock import host
from swapformer.results.record import Record
from swapformer.results.store import Store
from swapformer.study.launch.provenance import Provenance
from swapformer.study.launch.signals import ORPHANED, unblock_sigterm
from swapformer.study.launch.slots import Slot, threads_of
from swapformer.study.launch.trial import Trial, Work, execute, missing_probes
from swapformer.targets import VARIABLE
from swapformer.training.signals import SigtermReceived

log = logging.getLogger(__name__)

GRACE = 60.0
"""Seconds that a trial which was asked to stop has for its checkpoint and its record."""
KILL_TIMEOUT = 10.0
"""Seconds that a killed process is waited for."""
POLL = 0.05
"""Seconds between looks at a process whose end is waited for."""

_UNKNOWN = 255
"""What multiprocessing gives as the exit status of a process whose fork server has died."""


@dataclass
class Child:
    """A trial's process, seen from the launcher.

    It lives on when the fork server dies. Then nobody tells its exit status: it has ended once its lock is free.

    Attributes:
        why: the reason that the record will state, once it was asked to stop.
        asked: when it was asked.
    """

    trial: Trial
    slot: Slot
    process: Any  # multiprocessing.process.BaseProcess, which typeshed does not give a sentinel
    started: float = field(default_factory=time.monotonic)
    why: str | None = None
    asked: float | None = None
    pid: int = field(init=False)
    _code: int | None = field(default=None, init=False)
    _seen: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        self.pid = self.process.pid

    @property
    def sentinels(self) -> list[int]:
        """The file descriptors that become ready when it ends; nothing does when the fork server is gone."""
        return [self.process.sentinel] if self._code is None else []

    def end(self, why: str | None = None) -> None:
        """Ask it to stop where it can go on from; `why` is for the record."""
        if self.asked is None:
            self.why, self.asked = why, time.monotonic()
        with suppress(ProcessLookupError, PermissionError):
            os.kill(self.pid, signal.SIGTERM)

    def kill(self) -> None:
        """End it and the processes that it has started, at once."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)  # it leads a group, unless it is too young for that
        with suppress(ProcessLookupError, PermissionError):
            os.kill(self.pid, signal.SIGKILL)

    def enforce_time_limit(self, limit: float | None) -> None:
        """Ask it to stop when it has run for `limit` minutes, and kill it when it does not."""
        if limit is None:
            return
        if self.asked is None and time.monotonic() - self.started > 60 * limit:
            self.end(f"it ran into the time limit of {limit:g} minutes")
        elif self.why is not None and self.asked is not None and time.monotonic() - self.asked > GRACE:
            self.why += f", did not stop within {GRACE:g} s, and was killed"
            self.asked = math.inf
            self.kill()

    def wait(self, store: Store, deadline: float) -> bool:
        """Wait for its end; False if it has not come by `deadline`, of the monotonic clock."""
        while not (ended := self.has_ended(store)) and time.monotonic() < deadline:
            time.sleep(POLL)
        return ended

    def has_ended(self, store: Store) -> bool:
        """Whether it has; then a death that it could not record itself is on record, and why it was asked to stop."""
        if self._code is None:
            if self.process.is_alive():
                return False
            self._code = self.process.exitcode or 0
            self.process.close()
        if self._runs_without_server(store):
            self._seen = True  # once it has ended, its number may be that of a process of somebody else's
            return False
        if not self._code and self.why is None:
            return True
        try:
            return self._record_exit(store)
        except OSError as error:  # “running” without a holder reads as killed
            log.warning("the end of trial %s could not be recorded (%s)", self.trial.id, error)
            return True

    def _runs_without_server(self, store: Store) -> bool:
        """Whether it runs its trial without the server. A lock is there a moment before the heartbeat naming it."""
        if self._code != _UNKNOWN or not store.locked(self.trial.id):
            return False
        return store.holder(self.trial.id) in (None, (host(), self.pid))

    def _record_exit(self, store: Store) -> bool:
        with store.lock(self.trial.id) as mine:
            if not mine:  # another process has taken it up, unless it has done so itself since the last look
                return not self._runs_without_server(store)
            if self._code == _UNKNOWN and not self._seen:
                self.kill()  # it is too young to have locked its trial, and later nobody would know of it
            found = store.read(self.trial.id)
            found = found or Record(self.trial.id, records.RUNNING, seed=self.trial.config["seed"])
            if (completed := self._completed(found, self._code or 0, store)) != found:
                store.write(completed)
        return True

    def _completed(self, record: Record, code: int, store: Store) -> Record:
        """The record with what this process did not know, or did not live to write."""
        if record.status == records.INTERRUPTED and self.why is not None:
            return record.but(reason=self.why)
        if record.final and self.why is not None and missing_probes(self.trial, store, record.status):
            return record.but(notes=(*record.notes, f"probes: {self.why}"))
        if record.status != records.RUNNING or (not code and self.why is None):
            return record  # else it may have been stopped while it waited for its turn, before it began a record
        if self.why is not None:
            status = records.INTERRUPTED
        elif code == _UNKNOWN:
            status = records.KILLED
        else:
            status = records.FAILED if code > 0 else records.INTERRUPTED if -code == signal.SIGTERM else records.KILLED
        reason = self.why or f"its process ended {_exit_text(code)}; see {store.directory(self.trial.id) / 'log.txt'}"
        seconds = round(record.seconds + store.unrecorded_seconds(record.id), 3)
        return record.but(status=status, reason=reason, ended=records.now(), seconds=seconds)


def _exit_text(code: int) -> str:
    """The exit status of a process in words."""
    if code == _UNKNOWN:
        return "after the fork server, which would have said how"
    return f"by signal {signal.Signals(-code).name}" if -code in set(signal.Signals) else f"by exit status {code}"


def child_main(
    trial: Trial, runs_dir: str, slot: Slot, provenance: Provenance, work: Work | None, tied: bool, packages: str
) -> None:
    """Run a trial in its own process. Threads, session, devices and output come first, before anything computes."""
    os.environ[VARIABLE] = packages  # the fork server has the environment of when it began
    with suppress(PermissionError):
        os.setsid()
    slot.occupy()
    unblock_sigterm()
    if tied:
        threading.Thread(target=_follow_parent, name="tie", daemon=True).start()
    store = Store(runs_dir)
    output = os.open(store.directory(trial.id) / "log.txt", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(output, 1)
    os.dup2(output, 2)
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(name)s: %(message)s", force=True)
    if work is None:
        import torch

        torch.set_num_threads(threads_of(trial))
    with suppress(UsageError, KeyboardInterrupt, SigtermReceived):  # the record says it
        execute(trial, store, provenance, work)


def _follow_parent() -> None:
    """Stop as for SIGTERM when the launcher's process is gone; at once if that takes too long."""
    parent = multiprocessing.parent_process()
    assert parent is not None, "a trial's process was started by a launcher"
    parent.join()
    ORPHANED.set()
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(GRACE)
    os.killpg(os.getpid(), signal.SIGKILL)
