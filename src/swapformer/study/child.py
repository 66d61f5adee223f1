"""The process of one trial: how it lives, and what is written down of its death."""

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
from swapformer.study import record as records
from swapformer.study.provenance import Provenance
from swapformer.study.record import Record
from swapformer.study.signals import Interrupted, hear_stops
from swapformer.study.slots import Slot, threads_of
from swapformer.study.store import Store
from swapformer.study.trial import Trial, Work, execute, missing_probes
from swapformer.targets import VARIABLE

GRACE = 60.0
"""Seconds that a trial which was asked to stop has for its checkpoint and its record."""


@dataclass
class Child:
    """A trial's process, seen from the launcher.

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

    def end(self, why: str | None = None) -> None:
        """Ask it to stop where it can go on from; `why` is for the record."""
        if self.asked is None:
            self.why, self.asked = why, time.monotonic()
        with suppress(ProcessLookupError, ValueError):
            self.process.terminate()

    def kill(self) -> None:
        """End it and the processes that it has started, at once."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)  # it leads a group, unless it is too young for that
        with suppress(ProcessLookupError, ValueError):
            self.process.kill()

    def hold_to(self, limit: float | None) -> None:
        """Ask it to stop when it has run for `limit` minutes, and kill it when it does not."""
        if limit is None:
            return
        if self.asked is None and time.monotonic() - self.started > 60 * limit:
            self.end(f"it ran into the time limit of {limit:g} minutes")
        elif self.why is not None and self.asked is not None and time.monotonic() - self.asked > GRACE:
            self.why += f", did not stop within {GRACE:g} s, and was killed"
            self.asked = math.inf
            self.kill()

    def bury(self, store: Store) -> None:
        """Record a death that the trial could not record itself, and why it was asked to stop."""
        code = self.process.exitcode
        self.process.close()
        if not code and self.why is None:
            return
        with store.claim(self.trial.id) as mine:
            if mine:  # else only the server died, and the trial itself lives on
                found = store.read(self.trial.id)
                found = found or Record(self.trial.id, records.RUNNING, seed=self.trial.config["seed"])
                if (told := self._told(found, code or 0, store)) != found:
                    store.write(told)

    def _told(self, record: Record, code: int, store: Store) -> Record:
        """The record with what this process did not know, or did not live to write."""
        if record.status == records.INTERRUPTED and self.why is not None:
            return record.but(reason=self.why)
        if record.final and self.why is not None and missing_probes(self.trial, store):
            return record.but(notes=(*record.notes, f"probes: {self.why}"))
        if record.status != records.RUNNING or not code:
            return record
        died = f"signal {signal.Signals(-code).name}" if -code in set(signal.Signals) else f"exit status {code}"
        log = store.directory(self.trial.id) / "log.txt"
        status = records.FAILED if code > 0 else records.INTERRUPTED if -code == signal.SIGTERM else records.KILLED
        if self.why is not None:
            status = records.INTERRUPTED
        reason = self.why or f"its process ended by {died}; see {log}"
        return record.but(status=status, reason=reason, ended=records.now())


def live(
    trial: Trial, runs_dir: str, slot: Slot, provenance: Provenance, work: Work | None, tied: bool, packages: str
) -> None:
    """The life of a trial's process. Threads, session, devices and output come first, before anything computes."""
    os.environ[VARIABLE] = packages  # the fork server has the environment of when it began
    with suppress(PermissionError):
        os.setsid()
    slot.occupy()
    hear_stops()
    orphaned = threading.Event()
    if tied:
        threading.Thread(target=_follow_parent, args=(orphaned,), name="tie", daemon=True).start()
    store = Store(runs_dir)
    output = os.open(store.directory(trial.id) / "log.txt", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(output, 1)
    os.dup2(output, 2)
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(name)s: %(message)s", force=True)
    if work is None:
        import torch

        torch.set_num_threads(threads_of(trial))
    with suppress(UsageError, KeyboardInterrupt, Interrupted):  # the record says it
        execute(trial, store, provenance, work)
    if orphaned.is_set():
        with store.claim(trial.id) as mine:
            if mine and (found := store.read(trial.id)) is not None and found.status == records.INTERRUPTED:
                store.write(found.but(status=records.KILLED, reason="the process that had started it was killed"))


def _follow_parent(orphaned: threading.Event) -> None:
    """Stop as for SIGTERM when the launcher's process is gone; at once if that takes too long."""
    parent = multiprocessing.parent_process()
    assert parent is not None, "a trial's process was started by a launcher"
    parent.join()
    orphaned.set()
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(GRACE)
    os.killpg(os.getpid(), signal.SIGKILL)
