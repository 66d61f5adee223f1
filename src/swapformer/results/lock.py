"""The lock on a trial: a kernel lock held by its process, and a heartbeat for hosts that the lock does not reach.

The kernel drops the lock when the process ends, however it ends. Kernel locks may not cross hosts on a shared file
system, so the holder also writes a heartbeat. One rule says whether a trial is locked: its kernel lock is taken, or
the heartbeat of another host gives a time within `STALE` of now, in the past or in the future. Clocks of the hosts must
agree to within half of `STALE`.
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
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from swapformer.errors import UsageError
from swapformer.results.files import NO_FILE, CorruptFile, set_aside_stranger, temporary_of
from swapformer.results.schema import from_json, read_json

BEAT = 10.0
"""Seconds between heartbeats."""
STALE = 6 * BEAT
"""Seconds from now within which a heartbeat of another host counts."""
LOCK, HEARTBEAT = "lock", "heartbeat"
"""The names of the two files in a trial's folder."""

NO_LOCKS = "runs_dir must be on a file system with locks, but locking failed"
_BUSY = (errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES)


def host() -> str:
    """The name of this kernel: two containers that share it share its locks, two machines of one name do not."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text()[:8]
    except OSError:
        boot = ""
    return f"{socket.gethostname()}:{boot}"


def is_locked(folder: Path) -> bool:
    """Whether a process, on this host or another, holds the lock on the trial in `folder` now."""
    try:
        descriptor = os.open(folder / LOCK, os.O_RDONLY)
    except FileNotFoundError:
        return False
    except OSError as error:
        if error.errno in NO_FILE:  # what cannot be opened is held by nobody
            return False
        raise UsageError(f"{folder / LOCK} cannot be read: {error.strerror}") from None
    try:
        return not _flock(descriptor, fcntl.LOCK_SH) or _locked_by_another_host(folder)
    finally:
        os.close(descriptor)


def holder(folder: Path) -> tuple[str, int] | None:
    """The host and the process that wrote the newest heartbeat; None if missing."""
    beat = _read_heartbeat(folder / HEARTBEAT)
    return None if beat is None else (beat.host, beat.pid)


@contextmanager
def lock(folder: Path) -> Iterator[bool]:
    """Hold the lock on the trial in `folder`, which is made; yields False when another process has it."""
    descriptor = _open(folder)
    if descriptor is None:
        yield False
        return
    try:
        if not _start_beating(folder):
            yield False
            return
        stop = threading.Event()
        thread = threading.Thread(target=_keep_beating, args=(folder, stop), name="heartbeat", daemon=True)
        thread.start()
        try:
            yield True
        finally:
            stop.set()
            thread.join()
            if _is_at(descriptor, folder / LOCK):  # a folder that was moved away may have a successor with a holder
                (folder / HEARTBEAT).unlink(missing_ok=True)
    finally:
        os.close(descriptor)  # and with it the lock; the file itself stays, or two holders could lock two files


@contextmanager
def wait_for_lock(path: Path) -> Iterator[None]:
    """Hold the kernel lock on a folder, or on a file, which is made; waits for the holder, which takes milliseconds."""
    descriptor = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR | os.O_CREAT, 0o644)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        except OSError as error:
            raise UsageError(f"{NO_LOCKS} ({error}); choose another") from error
        yield
    finally:
        os.close(descriptor)


def _open(folder: Path) -> int | None:
    """The lock's file, locked; None when another process has it. A file that was moved away since is no lock."""
    while True:
        _clear_way(folder)
        try:
            descriptor = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT, 0o644)
        except FileNotFoundError:
            continue  # the folder went between the two
        # A process that only asks (is_locked) holds a shared lock for microseconds: a few tries outlast them.
        locked = _flock(descriptor, fcntl.LOCK_EX, tries=5)
        if locked and _is_at(descriptor, folder / LOCK):
            return descriptor
        os.close(descriptor)
        if not locked:
            return None


def _clear_way(folder: Path) -> None:
    """Make the folder, and set aside what stands where it or its lock should be and is none."""
    for _ in range(2):
        with suppress(FileExistsError, NotADirectoryError):
            folder.mkdir(parents=True, exist_ok=True)
            break
        set_aside_stranger(folder, folder=True)
    if (folder / LOCK).is_file() or not os.path.lexists(folder / LOCK):
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)  # another process that sees the same must not move our lock
        for name in (LOCK, HEARTBEAT):
            set_aside_stranger(folder / name)
    finally:
        os.close(descriptor)


def _is_at(descriptor: int, path: Path) -> bool:
    """Whether the open file is the one that `path` names now."""
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    except FileNotFoundError:
        return False


def _flock(descriptor: int, kind: int, tries: int = 1) -> bool:
    for _ in range(tries):
        try:
            fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
            return True
        except OSError as error:
            if error.errno not in _BUSY:
                raise UsageError(f"{NO_LOCKS} ({error}); choose another") from error
        if tries > 1:
            time.sleep(0.01)
    return False


def _start_beating(folder: Path) -> bool:
    """Write the first heartbeat; False when another host beat us to it (exclusive creation is atomic across hosts).

    An old heartbeat is moved away and read again there: another host may have written its own since the first look.
    """
    if _locked_by_another_host(folder):
        return False
    path = folder / HEARTBEAT
    set_aside_stranger(path)
    old = temporary_of(path)
    with suppress(FileNotFoundError):
        path.rename(old)
    try:
        if _is_of_another_host(_read_heartbeat(old)):
            with suppress(OSError):  # it is there again, or this file system has no links: the next beat writes it
                os.link(old, path)
            return False
        with path.open("x", encoding="utf-8") as file:
            file.write(_heartbeat())
    except FileExistsError:
        return False
    finally:
        old.unlink(missing_ok=True)
    return True


def _keep_beating(folder: Path, stop: threading.Event) -> None:
    temporary = temporary_of(folder / HEARTBEAT)
    while not stop.wait(BEAT):
        try:
            temporary.write_text(_heartbeat(), encoding="utf-8")
            os.replace(temporary, folder / HEARTBEAT)
        except OSError:
            continue  # a full disk must not end the training; the lock still holds on this host


def _heartbeat() -> str:
    return json.dumps(asdict(Heartbeat(host(), os.getpid(), time.time())))


def _locked_by_another_host(folder: Path) -> bool:
    return _is_of_another_host(_read_heartbeat(folder / HEARTBEAT))


def _is_of_another_host(beat: Heartbeat | None) -> bool:
    """Whether a heartbeat says that another host holds the trial."""
    # A clock may be set back: one from the future does not count either.
    return beat is not None and beat.host != host() and abs(time.time() - beat.time) < STALE


@dataclass(frozen=True)
class Heartbeat:
    """A sign of life of a trial's holder: its host, its process, and the time there."""

    host: str
    pid: int
    time: float


def _read_heartbeat(path: Path) -> Heartbeat | None:
    """The heartbeat; None without one, or cut off by a crash: then only the lock speaks."""
    try:
        return from_json(Heartbeat, read_json(path))
    except (FileNotFoundError, CorruptFile, UsageError):
        return None
