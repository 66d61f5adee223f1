"""The local launcher: runs each trial in a fresh process, forked from a server that has the heavy imports done.

The server (`multiprocessing`'s fork server) has torch and Lightning imported but never ran a torch operation, since
the thread pools of torch do not survive a fork. Each child has its own session, so that a Ctrl-C reaches the parent
alone, which then decides. Nothing is returned: what became of a trial is read from the store.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import sys
import tempfile
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing import connection
from multiprocessing.context import BaseContext
from types import ModuleType

from swapformer.console import unwritable
from swapformer.errors import UsageError
from swapformer.paths import environment
from swapformer.ranges import Count
from swapformer.study.launch.child import KILL_TIMEOUT, Child, child_main
from swapformer.study.launch.launcher import Launcher
from swapformer.study.launch.other_node import nodes_of
from swapformer.study.launch.signals import blocked_signals, collected_signals
from swapformer.study.launch.slots import Slot, devices_of, make_slots, pinned_threads, require_room
from swapformer.study.launch.trial import Trial, is_complete
from swapformer.targets import allowed
from swapformer.training.nodes import meeting

log = logging.getLogger(__name__)

POLL = 0.2
"""Seconds between looks at signals and progress while children run."""

SOCKET_NAME_LIMIT = 103
"""Bytes that the kernel allows a socket's name; Linux has four more."""
SOCKET_NAME_SUFFIX = "/pymp-12345678/listener-12345678"
"""What multiprocessing appends to the folder for temporary files."""

_SAFE = {"PYTHONSAFEPATH": "1"}
"""No file of the working directory stands for a module of Python itself; trials get the path of this process."""


@dataclass
class LocalLauncher(Launcher):
    """Runs trials side by side on this machine.

    Attributes:
        slots: how many trials at a time; None: as many as cores (or devices) allow.
        slots_per_gpu: how many trials share a GPU; None: one, unless `slots` says more.
        gpus: the GPUs to use, as CUDA_VISIBLE_DEVICES names them; None: all that are visible.
        tied: whether trials stop when this process is gone; else they go on, and the next launcher finds them running.

    Raises UsageError for less than one slot, or no time.
    """

    slots_per_gpu: Count | None = None
    gpus: Sequence[int | str] | None = None
    tied: bool = False
    children: list[Child] = field(default_factory=list, init=False, repr=False)

    def slots_here(self, trials: Sequence[Trial]) -> int:
        """The number of these trials that run at a time. Raises what `make_slots` does."""
        return len(self._slots(trials))

    def _slots(self, trials: Sequence[Trial]) -> list[Slot]:
        found = make_slots(trials, self.slots, self.slots_per_gpu, self.gpus)
        if (nodes := nodes_of(trials)) > 1:
            meeting(nodes)  # one trial at a time: there is one place
            return found[:1]
        if self.slots_per_gpu is not None and self.slots_per_gpu > 1:
            require_room(trials, self.slots_per_gpu)
        return found

    def __call__(self, trials: Sequence[Trial]) -> None:
        """Attempt each trial once and return when all children have ended.

        Trials that another process is running, or has finished since they were asked for, are left to it. The first
        SIGINT or SIGTERM is forwarded to the children as SIGTERM, the second kills them; both end in KeyboardInterrupt
        after the children have ended.

        Raises:
            UsageError: for trials on GPUs that are not there. A job says so in its trial's record.
        """
        if devices_of(trials) and self.work is None and not self.tied:
            from swapformer.training.fit import require_devices  # late: it imports torch

            for trial in trials:
                require_devices(trial.config["trainer"])
        waiting = deque(trials)
        free = self._slots(trials)
        for slot in [child.slot for child in self.children]:  # of a call that something has broken off
            if slot in free:
                free.remove(slot)
        context = self._context()
        with collected_signals() as stops:
            while waiting or self.children:
                while waiting and free and not stops:
                    trial = waiting.popleft()
                    if not (self.store.locked(trial.id) or is_complete(trial, self.store, self.store.read(trial.id))):
                        self._start(context, trial, free)
                if stops:
                    waiting.clear()
                connection.wait([found for child in self.children for found in child.sentinels], timeout=POLL)
                for child in [child for child in self.children if child.has_ended(self.store)]:
                    self.children.remove(child)
                    free.append(child.slot)
                for child in self.children:
                    child.enforce_time_limit(self.time_limit)
                _forward(stops, self.children)
                if self.tick is not None:
                    self.tick([child.trial for child in self.children])
            if stops:
                raise KeyboardInterrupt

    def shutdown(self, why: str, seconds: float) -> None:
        """Stop the children from within a handler of signals; those that need longer than `seconds` are killed."""
        for child in self.children:
            child.end(why)
        deadline = time.monotonic() + seconds
        for child in self.children:
            if not child.wait(self.store, deadline):
                child.kill()
                child.wait(self.store, time.monotonic() + KILL_TIMEOUT)
        self.children.clear()

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
            target=child_main,
            args=(trial, self.store.runs_dir, slot, self.provenance, self.work, self.tied, allowed()),
            name=trial.id,
        )
        try:
            self.store.directory(trial.id).mkdir(parents=True, exist_ok=True)
            with environment(_SAFE), pinned_threads(1), short_sockets(), blocked_signals(), hidden_script():
                process.start()
                self.children.append(Child(trial, slot, process))
        except (OSError, EOFError) as error:  # EOFError: the server died before it could fork
            log.warning("trial %s could not be started (%s)", trial.id, unwritable(error) or error)
            free.append(slot)


def _forward(stops: list[int], children: Sequence[Child]) -> None:
    """Pass a stop on: SIGTERM for the first, SIGKILL for the second, once each."""
    for number, stop in enumerate(stops[:2]):
        if stop:
            for child in children:
                child.kill() if number else child.end()
            stops[number] = 0


@contextmanager
def hidden_script() -> Iterator[None]:
    """Start processes within: they do not run the script again that started them, and that may run a study at once.

    Multiprocessing would run it in every child, to find what was defined there; a trial needs nothing from it.
    """
    script = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = script


@contextmanager
def short_sockets() -> Iterator[None]:
    """Start processes within: their sockets lie in the folder for temporary files, or in /tmp if its name is too long.

    Raises:
        UsageError: where neither will do.
    """
    before, longest = tempfile.tempdir, SOCKET_NAME_LIMIT - len(SOCKET_NAME_SUFFIX)
    given = tempfile.gettempdir()
    fitting = [path for path in (given, "/tmp", "/var/tmp") if len(os.fsencode(path)) <= longest]
    usable = [path for path in fitting if os.access(path, os.W_OK | os.X_OK)]
    if not usable:
        raise UsageError(
            f"TMPDIR must have at most {longest} bytes, since it holds sockets, but it is {given}; set it to a folder "
            "with a shorter name"
        )
    tempfile.tempdir = usable[0]
    try:
        yield
    finally:
        tempfile.tempdir = before
