"""The local launcher: each trial in a fresh process, forked from a server that has the heavy imports done.

The server (`multiprocessing`'s fork server) has torch and Lightning imported but never ran a torch operation, since
the thread pools of torch do not survive a fork. Each child has its own session, so that a Ctrl-C reaches the parent
alone, which then decides. Nothing is returned: what became of a trial is read from the store.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import sys
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import connection
from multiprocessing.context import BaseContext
from typing import Any

from swapformer.errors import UsageError
from swapformer.study import record as records
from swapformer.study.provenance import Provenance
from swapformer.study.record import Record
from swapformer.study.signals import Interrupted, collected_stops
from swapformer.study.slots import Slot, make_slots, pinned_threads, threads_of
from swapformer.study.store import Store
from swapformer.study.trial import Trial, Work, execute, is_complete

log = logging.getLogger(__name__)

POLL = 0.2
"""Seconds between looks at signals and progress while children run."""


@dataclass
class _Child:
    trial: Trial
    slot: Slot
    process: Any  # multiprocessing.process.BaseProcess, which typeshed does not give a sentinel


@dataclass
class LocalLauncher:
    """Runs trials side by side on this machine.

    Attributes:
        store: where the trials claim their places and leave their records.
        slots: how many trials at a time; None: as many as cores (or devices) allow.
        work: what a trial does, for tests; None: train.
        tick: called a few times a second with the trials that run now.

    Raises UsageError for less than one slot.
    """

    store: Store
    provenance: Provenance
    slots: int | None = None
    work: Work | None = None
    tick: Callable[[Sequence[Trial]], None] | None = None

    def __post_init__(self) -> None:
        if self.slots is not None and self.slots < 1:
            raise UsageError(f"slots must be at least 1, but {self.slots} was given")

    def __call__(self, trials: Sequence[Trial]) -> None:
        """Attempt each trial once and return when all children have ended.

        Trials that another process is running are left to it. The first SIGINT or SIGTERM is forwarded to the
        children as SIGTERM, the second kills them; both end in KeyboardInterrupt after the children have ended.
        """
        waiting = deque(trials)
        free = make_slots(trials, self.slots)
        children: list[_Child] = []
        context = self._context()
        with collected_stops() as stops:
            while waiting or children:
                while waiting and free and not stops:
                    trial = waiting.popleft()
                    if not self._is_taken(trial):
                        children += self._start(context, trial, free)
                if stops:
                    waiting.clear()
                connection.wait([child.process.sentinel for child in children], timeout=POLL)
                for child in [child for child in children if not child.process.is_alive()]:
                    children.remove(child)
                    free.append(child.slot)
                    self._bury(child)
                _forward(stops, children)
                if self.tick is not None:
                    self.tick([child.trial for child in children])
            if stops:
                raise KeyboardInterrupt

    def _is_taken(self, trial: Trial) -> bool:
        """Whether another process runs the trial, or has finished it since it was asked for."""
        return self.store.claimed(trial.id) or is_complete(trial, self.store, self.store.read(trial.id))

    def _context(self) -> BaseContext:
        method = "forkserver" if "forkserver" in multiprocessing.get_all_start_methods() else "spawn"
        context = multiprocessing.get_context(method)
        if method == "forkserver":
            imports = "swapformer.study.preload" if self.work is None else self.work.fit.__module__
            context.set_forkserver_preload(["swapformer.study.server", imports])
        return context

    def _start(self, context: BaseContext, trial: Trial, free: list[Slot]) -> list[_Child]:
        """The started child, in a slot taken from `free`; none when the machine refuses another process."""
        self.store.directory(trial.id).mkdir(parents=True, exist_ok=True)
        slot = free.pop()
        process = context.Process(  # type: ignore[attr-defined]
            target=_child, args=(trial, self.store.runs_dir, slot, self.provenance, self.work), name=trial.id
        )
        try:
            with pinned_threads(1):
                process.start()
        except (OSError, EOFError) as error:  # EOFError: the server died before it could fork
            log.warning("trial %s could not be started (%s)", trial.id, error)
            free.append(slot)
            return []
        return [_Child(trial, slot, process)]

    def _bury(self, child: _Child) -> None:
        """Record the death of a child that could not do so itself."""
        code = child.process.exitcode
        child.process.close()
        if not code:
            return
        died = f"signal {signal.Signals(-code).name}" if -code in set(signal.Signals) else f"exit status {code}"
        status = records.FAILED if code > 0 else records.INTERRUPTED if -code == signal.SIGTERM else records.KILLED
        trial = child.trial.id
        with self.store.claim(trial) as mine:
            if not mine:  # only the server died: the trial itself lives on
                return
            record = self.store.read(trial) or Record(id=trial, status=records.RUNNING, seed=child.trial.config["seed"])
            if record.status == records.RUNNING:
                reason = f"its process ended by {died}; see {self.store.directory(trial) / 'log.txt'}"
                self.store.write(record.but(status=status, reason=reason, ended=records.now()))


def _child(trial: Trial, runs_dir: str, slot: Slot, provenance: Provenance, work: Work | None) -> None:
    """The life of a trial's process. Threads, session, devices and output come first, before anything computes."""
    with suppress(PermissionError):
        os.setsid()
    if slot.devices is not None:
        os.environ["CUDA_VISIBLE_DEVICES"] = slot.devices
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


def _forward(stops: list[int], children: Sequence[_Child]) -> None:
    """Pass a stop on: SIGTERM for the first, SIGKILL for the second, once each."""
    for number, stop in enumerate(stops[:2]):
        if stop:
            for child in children:
                with suppress(ProcessLookupError, ValueError):
                    child.process.kill() if number else child.process.terminate()
            stops[number] = 0
