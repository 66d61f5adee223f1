"""The machine that trials run on: its hardware, and a lock that keeps trials and measurements of cost apart.

Every trial that computes holds the machine's lock together with all others; who measures times holds it alone. The
kernel gives it back when a process ends, however it ends. It reaches the trials of one user on one machine.
"""

from __future__ import annotations

import fcntl
import logging
import os
import platform
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib.metadata import version
from pathlib import Path

from swapformer.errors import UsageError

log = logging.getLogger(__name__)


VARIABLE = "SWAPFORMER_LOCKS"
"""The environment variable that names a folder for the lock, where parts of a machine do not compete with others."""
FOLDERS = (Path("/tmp"), Path("/var/tmp"))
"""Where the lock lies otherwise, the first that can be written: the same for all jobs of a user, whatever TMPDIR says,
and whether the user is logged in or not."""


def lock_files(kind: str = "") -> list[Path]:
    """The files that may be locked, the first first."""
    user = os.getuid() if hasattr(os, "getuid") else os.getpid()
    folders = [Path(given)] if (given := os.environ.get(VARIABLE)) else FOLDERS
    return [folder / f"swapformer-{user}{kind}.lock" for folder in folders]


@contextmanager
def _opened() -> Iterator[tuple[int, int]]:
    """Descriptors of the turn and of the machine's lock, in the order in which they are locked.

    A process that waits for the machine to itself holds the turn, so that no trial begins before it. Raises OSError,
    which names the file, where none can be opened.
    """
    with ExitStack() as stack:
        turn, lock = (_descriptor(lock_files(kind)) for kind in ("-turn", ""))
        for descriptor in (turn, lock):
            stack.callback(os.close, descriptor)
        yield turn, lock


def _descriptor(paths: list[Path]) -> int:
    for number, path in enumerate(paths, start=1):
        try:
            return os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        except OSError:
            if number == len(paths):
                raise
    raise AssertionError("there is a file to try")


@contextmanager
def computing() -> Iterator[None]:
    """A trial computes here; while somebody measures exclusively, or waits to, it waits."""
    with ExitStack() as stack:
        try:
            turn, lock = stack.enter_context(_opened())
        except OSError as error:  # a trial does not fail for want of a lock: measuring will
            log.warning("the machine's lock cannot be opened (%s): times must not be measured now", error)
        else:
            waiting = "times are being measured on this machine, with nothing beside: waiting for that to end"
            _lock(turn, fcntl.LOCK_SH, waiting)
            _lock(lock, fcntl.LOCK_SH, waiting)
            fcntl.flock(turn, fcntl.LOCK_UN)
        yield


@contextmanager
def alone() -> Iterator[None]:
    """No trial computes here: those that run are waited for, and those that come later wait for this one.

    Raises:
        UsageError: where nothing can be locked.
    """
    with ExitStack() as stack:
        try:
            locks = stack.enter_context(_opened())
        except OSError as error:
            raise UsageError(
                f"times are measured under the machine's lock, but it cannot be opened ({error}); one of "
                f"{', '.join(str(path.parent) for path in lock_files())} must be a folder that can be written"
            ) from error
        for lock in locks:
            _lock(
                lock,
                fcntl.LOCK_EX,
                "trials run on this machine: waiting for them to end, to measure by itself",
            )
        yield


def _lock(descriptor: int, kind: int, waiting: str) -> None:
    """Lock a file, and log `waiting` where that takes a while."""
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        log.warning(waiting)
        fcntl.flock(descriptor, kind)


def hardware(accelerator: str) -> str:
    """The facts that times depend on, other than the trial, in words: used devices, processor, cores, memory, torch."""
    words = [*([] if accelerator == "cpu" else _devices()), processor(), f"{cores()} core{'' if cores() == 1 else 's'}"]
    memory = round((memory_bytes() or 0) / 2**30)
    return " · ".join([*words, f"{memory} GiB", f"torch {version('torch')}"])


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def processor() -> str:
    """The model's name, as the system gives it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def memory_bytes() -> int | None:
    """The memory of this machine; None where the system does not say."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError):
        return None


def _devices() -> list[str]:
    import torch

    return [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
