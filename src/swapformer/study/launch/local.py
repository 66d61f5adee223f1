"""The local launcher: each trial in a fresh process, forked from a server that has the heavy imports done.

The server (`multiprocessing`'s fork server) has torch and Lightning imported but never ran a torch operation, since
the thread pools of torch do not survive a fork. Each child has its own session, so that a Ctrl-C reaches the parent
alone, which then decides. Nothing is returned: what became of a trial is read from the store.
"""

from __future__ import annotations

import logging
import multiprocessing
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from multiprocessing import connection
from multiprocessing.context import BaseContext

from swapformer.results.store import Store
from swapformer.study.launch.child import LAST, Child, live
from swapformer.study.launch.launcher_settings import require_counts, require_time
from swapformer.study.launch.provenance import Provenance
from swapformer.study.launch.signals import collected_stops, stops_blocked
from swapformer.study.launch.slots import Slot, environment, make_slots, pinned_threads
from swapformer.study.launch.sockets import short_sockets
from swapformer.study.launch.trial import Trial, Work, is_complete
from swapformer.targets import allowed

log = logging.getLogger(__name__)

POLL = 0.2
"""Seconds between looks at signals and progress while children run."""

_SAFE = {"PYTHONSAFEPATH": "1"}
"""No file of the working directory stands for a module of Python itself; trials get the path of this process."""


@dataclass
class LocalLauncher:
    """Runs trials side by side on this machine.

    Attributes:
        store: where the trials claim their places and leave their records.
        slots: how many trials at a time; None: as many as cores (or devices) allow.
        work: what a trial does, for tests; None: train.
        tick: called a few times a second with the trials that run now.
        slots_per_gpu: how many trials share a GPU; None: one, unless `slots` says more.
        gpus: the GPUs to use, as CUDA_VISIBLE_DEVICES names them; None: all that are visible.
        time_limit: minutes that one start of a trial may take; it is then interrupted, and can be resumed.
        tied: whether trials stop when this process is gone; else they go on, and the next launcher finds them running.

    Raises UsageError for less than one slot, or no time.
    """

    store: Store
    provenance: Provenance
    slots: int | None = None
    work: Work | None = None
    tick: Callable[[Sequence[Trial]], None] | None = None
    slots_per_gpu: int | None = None
    gpus: Sequence[int | str] | None = None
    time_limit: float | None = None
    tied: bool = False
    children: list[Child] = field(default_factory=list, init=False, repr=False)

    def __post_init__(self) -> None:
        require_counts(slots=self.slots, slots_per_gpu=self.slots_per_gpu)
        require_time(self.time_limit)

    def __call__(self, trials: Sequence[Trial]) -> None:
        """Attempt each trial once and return when all children have ended.

        Trials that another process is running are left to it. The first SIGINT or SIGTERM is forwarded to the
        children as SIGTERM, the second kills them; both end in KeyboardInterrupt after the children have ended.
        """
        waiting = deque(trials)
        free = make_slots(trials, self.slots, self.slots_per_gpu, self.gpus)
        for slot in [child.slot for child in self.children]:  # of a call that something has broken off
            if slot in free:
                free.remove(slot)
        context = self._context()
        with collected_stops() as stops:
            while waiting or self.children:
                while waiting and free and not stops:
                    trial = waiting.popleft()
                    if not self._is_taken(trial):
                        self._start(context, trial, free)
                if stops:
                    waiting.clear()
                connection.wait([found for child in self.children for found in child.sentinels], timeout=POLL)
                for child in [child for child in self.children if child.has_ended(self.store)]:
                    self.children.remove(child)
                    free.append(child.slot)
                for child in self.children:
                    child.hold_to(self.time_limit)
                _forward(stops, self.children)
                if self.tick is not None:
                    self.tick([child.trial for child in self.children])
            if stops:
                raise KeyboardInterrupt

    def wind_up(self, why: str, seconds: float) -> None:
        """Stop the children from within a handler of signals; those that need longer than `seconds` are killed."""
        for child in self.children:
            child.end(why)
        deadline = time.monotonic() + seconds
        for child in self.children:
            if not child.awaited(self.store, deadline):
                child.kill()
                child.awaited(self.store, time.monotonic() + LAST)
        self.children.clear()

    def _is_taken(self, trial: Trial) -> bool:
        """Whether another process runs the trial, or has finished it since it was asked for."""
        return self.store.locked(trial.id) or is_complete(trial, self.store, self.store.read(trial.id))

    def _context(self) -> BaseContext:
        method = "forkserver" if "forkserver" in multiprocessing.get_all_start_methods() else "spawn"
        context = multiprocessing.get_context(method)
        if method == "forkserver":
            imports = "swapformer.study.launch.fork_imports" if self.work is None else self.work.fit.__module__
            context.set_forkserver_preload(["swapformer.study.launch.fork_session", imports])
        return context

    def _start(self, context: BaseContext, trial: Trial, free: list[Slot]) -> None:
        """Start the trial in a slot taken from `free`, unless the machine refuses another process or folder."""
        slot = free.pop()
        process = context.Process(  # type: ignore[attr-defined]
            target=live,
            args=(trial, self.store.runs_dir, slot, self.provenance, self.work, self.tied, allowed()),
            name=trial.id,
        )
        try:
            self.store.directory(trial.id).mkdir(parents=True, exist_ok=True)
            with environment(_SAFE), pinned_threads(1), short_sockets(), stops_blocked():
                process.start()
                self.children.append(Child(trial, slot, process))
        except (OSError, EOFError) as error:  # EOFError: the server died before it could fork
            log.warning("trial %s could not be started (%s)", trial.id, error)
            free.append(slot)


def _forward(stops: list[int], children: Sequence[Child]) -> None:
    """Pass a stop on: SIGTERM for the first, SIGKILL for the second, once each."""
    for number, stop in enumerate(stops[:2]):
        if stop:
            for child in children:
                child.kill() if number else child.end()
            stops[number] = 0
