"""The machine that trials run on: its hardware, and a lock that keeps trials and measurements of cost apart.

Every trial that computes holds the machine's lock together with all others; who measures costs holds it alone. The
kernel gives it back when a process ends, however it ends. It reaches the trials of one user on one machine.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import logging
import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

from swapformer.errors import UsageError

log = logging.getLogger(__name__)


FOLDERS = (Path("/tmp"), Path("/var/tmp"))
"""Where the lock may lie, the first that can be written: the same for all jobs of a user, whatever TMPDIR says, and
whether the user is logged in or not."""


def lock_files() -> list[Path]:
    """The files that may be locked, the first first."""
    user = os.getuid() if hasattr(os, "getuid") else os.getpid()
    return [folder / f"swapformer-{user}.lock" for folder in FOLDERS]


def _opened() -> int:
    """A descriptor of the machine's lock. Raises OSError, which names the file, where none can be opened."""
    for number, path in enumerate(lock_files(), start=1):
        try:
            return os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        except OSError:
            if number == len(FOLDERS):
                raise
    raise AssertionError("there is a file to try")


@contextmanager
def computing() -> Iterator[None]:
    """A trial computes here; while somebody measures alone, it waits."""
    try:
        descriptor = _opened()
    except OSError as error:  # a trial does not fail for want of a lock: measuring will
        log.warning("the machine's lock cannot be opened (%s): costs must not be measured now", error)
        yield
        return
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            log.warning("costs are being measured on this machine, with nothing beside: waiting for that to end")
            fcntl.flock(descriptor, fcntl.LOCK_SH)
        yield
    finally:
        os.close(descriptor)


@contextmanager
def alone() -> Iterator[None]:
    """No trial computes here, and none begins.

    Raises:
        UsageError: while one does, or another process measures.
    """
    try:
        descriptor = _opened()
    except OSError as error:
        raise UsageError(
            f"costs are measured under the machine's lock, but it cannot be opened ({error}); one of "
            f"{', '.join(map(str, FOLDERS))} must be a folder that can be written"
        ) from error
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UsageError(
                "costs are measured with the machine to itself, but trials run on it now (or another measurement "
                "does); wait until they have ended"
            ) from None
        yield
    finally:
        os.close(descriptor)


def hardware(accelerator: str) -> dict[str, Any]:
    """What times depend on beside the trial: processor, cores, memory, devices if they are used, and torch.

    `name` says it in words, `key` is 12 hexadecimal digits of it.
    """
    found: dict[str, Any] = {
        "processor": _processor(),
        "cores": cores(),
        "memory_gib": _memory(),
        "devices": [] if accelerator == "cpu" else _devices(),
        "torch": version("torch"),
    }
    words = [*found["devices"], found["processor"], f"{found['cores']} core{'' if found['cores'] == 1 else 's'}"]
    words += [f"{found['memory_gib']} GiB", f"torch {found['torch']}"]
    key = hashlib.sha256(json.dumps(found, sort_keys=True).encode()).hexdigest()[:12]
    return {**found, "name": " · ".join(words), "key": key}


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def _memory() -> int:
    """Of the machine, in GiB."""
    try:
        return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30)
    except (ValueError, OSError):
        return 0


def _devices() -> list[str]:
    import torch

    return [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
