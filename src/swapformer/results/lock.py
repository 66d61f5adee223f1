"""Who runs a trial: a kernel lock held by its process, and a heartbeat for hosts that the lock does not reach.

The kernel drops the lock when the process ends, however it ends. Kernel locks may not cross hosts on a shared file
system, so the holder also writes a heartbeat; a fresh one from another host counts as a claim. Clocks of the hosts
must agree to within half of `STALE`.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from swapformer.errors import UsageError
from swapformer.results.files import temporary_of

BEAT = 10.0
"""Seconds between heartbeats."""
STALE = 6 * BEAT
"""Seconds after which a heartbeat of another host no longer counts."""

_BUSY = (errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES)


def host() -> str:
    """The name of this kernel: two containers that share it share its locks, two machines of one name do not."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text()[:8]
    except OSError:
        boot = ""
    return f"{socket.gethostname()}:{boot}"


def is_claimed(folder: Path) -> bool:
    """Whether some process holds the claim on the trial in `folder` now."""
    try:
        descriptor = os.open(folder / "lock", os.O_RDONLY)
    except FileNotFoundError:
        return False
    try:
        return not _lock(descriptor, fcntl.LOCK_SH) or _beating_elsewhere(folder)
    finally:
        os.close(descriptor)


def holder(folder: Path) -> tuple[str, int] | None:
    """The host and the process that have last said that they hold the claim; None where none says so."""
    pulse = _last_pulse(folder)
    return None if pulse is None else (pulse["host"], pulse["pid"])


@contextmanager
def claim(folder: Path) -> Iterator[bool]:
    """Hold the claim on the trial in `folder`, which is made; yields False when another process has it."""
    descriptor = _open(folder)
    if descriptor is None:
        yield False
        return
    try:
        if not _start_beating(folder):
            yield False
            return
        stop = threading.Event()
        thread = threading.Thread(target=_beat, args=(folder, stop), name="heartbeat", daemon=True)
        thread.start()
        try:
            yield True
        finally:
            stop.set()
            thread.join()
            if _is_at(descriptor, folder / "lock"):  # else the holder has moved the folder away, and may have a heir
                (folder / "heartbeat").unlink(missing_ok=True)
    finally:
        os.close(descriptor)  # and with it the lock; the file itself stays, or two holders could lock two files


def _open(folder: Path) -> int | None:
    """The lock's file, locked; None when another process has it. A file that was moved away meanwhile is no lock."""
    while True:
        folder.mkdir(parents=True, exist_ok=True)
        try:
            descriptor = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o644)
        except FileNotFoundError:
            continue  # the folder went between the two
        # Somebody who only asks (is_claimed) holds a shared lock for microseconds: a few tries outlast them.
        locked = _lock(descriptor, fcntl.LOCK_EX, tries=5)
        if locked and _is_at(descriptor, folder / "lock"):
            return descriptor
        os.close(descriptor)
        if not locked:
            return None


def _is_at(descriptor: int, path: Path) -> bool:
    """Whether the open file is the one that `path` names now."""
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    except FileNotFoundError:
        return False


def _lock(descriptor: int, kind: int, tries: int = 1) -> bool:
    for _ in range(tries):
        try:
            fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
            return True
        except OSError as error:
            if error.errno not in _BUSY:
                raise UsageError(
                    f"runs_dir must lie on a file system with locks, but locking failed ({error}); choose another"
                ) from error
        if tries > 1:
            time.sleep(0.01)
    return False


def _start_beating(folder: Path) -> bool:
    """Write the first heartbeat; False when another host beat us to it (exclusive creation is atomic across hosts)."""
    if _beating_elsewhere(folder):
        return False
    path = folder / "heartbeat"
    path.unlink(missing_ok=True)
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(_pulse())
    except FileExistsError:
        return False
    return True


def _beat(folder: Path, stop: threading.Event) -> None:
    temporary = temporary_of(folder / "heartbeat")
    while not stop.wait(BEAT):
        try:
            temporary.write_text(_pulse(), encoding="utf-8")
            os.replace(temporary, folder / "heartbeat")
        except OSError:
            continue  # a full disk must not end the training; the lock still holds on this host


def _pulse() -> str:
    return json.dumps({"host": host(), "pid": os.getpid(), "time": time.time()})


def _beating_elsewhere(folder: Path) -> bool:
    pulse = _last_pulse(folder)  # a clock may be set back: one from the future does not count either
    return pulse is not None and pulse["host"] != host() and abs(time.time() - pulse["time"]) < STALE


def _last_pulse(folder: Path) -> dict[str, Any] | None:
    """The heartbeat; None without one, or cut off by a crash: then only the lock speaks."""
    try:
        pulse = json.loads((folder / "heartbeat").read_bytes())
        return {"host": str(pulse["host"]), "pid": int(pulse["pid"]), "time": float(pulse["time"])}
    except (OSError, ValueError, KeyError, TypeError):
        return None
