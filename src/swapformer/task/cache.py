"""A cache on disk of tokenised texts, so that a trial need not read and tokenise its text again.

In `$SWAPFORMER_CACHE` (default `~/.cache/swapformer`): `<signature>.json` says what is made of texts of certain sizes
and times of change, and `<fingerprint>.<name>.npy` are its arrays, which are mapped into memory. Every file is written
under another name and then renamed, so that it is complete from its first moment; arrays are named by their content, so
that processes which write at the same time write the same. An entry holds a checksum of itself and the times at which
its arrays were found right; arrays that have been touched since are read and checked again. What is damaged counts as
absent; where nothing can be written, the arrays are in a temporary file that is deleted with the process. Of processes
that need the same arrays at the same time one makes them, and the others wait for it.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import logging
import mmap
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from swapformer.errors import UsageError

log = logging.getLogger(__name__)

_SETTLED = 2 * 10**9
"""Nanoseconds after a change of a file before its signature is trusted: a second change might leave the same times."""
_ABANDONED = 24 * 3600
"""Seconds after which no process writes in a draft any more."""
_DRAFT = ".swapformer-unfinished-"
_READ = 1 << 20
"""Bytes that are read at a time."""

Make = Callable[[Path], Mapping[str, Any]]
"""Writes `<name>.npy` for every name into a folder, and returns the header: JSON that belongs to them."""


class MappedArray:
    """An array in a file, `array`, of which only what has been read is in memory."""

    def __init__(self, path: Path) -> None:
        with path.open("rb") as file:
            shape, dtype = _array_header(file)
            self._mapping = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            self.array: NDArray[Any] = np.ndarray(shape, dtype, self._mapping, offset=file.tell())

    def release(self) -> None:
        """Give back the memory of what has been read; the system keeps what it has room for."""
        if hasattr(mmap, "MADV_DONTNEED"):
            self._mapping.madvise(mmap.MADV_DONTNEED)


@dataclass(frozen=True, eq=False)
class CachedArrays:
    """A header, the arrays that belong to it, and the SHA-256 (hex) of both."""

    header: Mapping[str, Any]
    arrays: Mapping[str, MappedArray]
    fingerprint: str


def cache_dir() -> Path:
    """The folder of the cache."""
    return Path(os.environ.get("SWAPFORMER_CACHE") or Path("~/.cache/swapformer").expanduser()) / "corpora"


def cached_arrays(facts: Sequence[Any], changed: int, names: Sequence[str], make: Make) -> CachedArrays:
    """The arrays that `make` writes, from the cache where they have been made of the same `facts` before.

    `facts`: JSON that identifies all that goes into it without reading it: files with sizes and times, settings, code.
    `changed`: the latest change of what it is made of, in nanoseconds since 1970.
    """
    signature = hashlib.sha256(json.dumps([list(facts), list(names)]).encode()).hexdigest()
    found = _load(signature, names)
    if found is not None:
        return found
    with _only_builder(signature):  # another process may have made them by now
        return _load(signature, names) or _built(signature, changed, names, make)


@contextlib.contextmanager
def _only_builder(signature: str) -> Iterator[None]:
    """Wait until no other process makes the same arrays. Where no lock can be had, nobody waits."""
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError, RuntimeError):
            cache_dir().mkdir(parents=True, exist_ok=True)
            lock = stack.enter_context(Path(cache_dir(), f"{_DRAFT}{signature}").open("w"))
            stack.callback(Path(lock.name).unlink, missing_ok=True)  # before the file is closed, so before others go on
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                log.info("another process tokenises the same text: waiting for it")
                fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _built(signature: str, changed: int, names: Sequence[str], make: Make) -> CachedArrays:
    """The arrays that `make` writes now, kept in the cache where it can be written and no file has just changed."""
    folder, header = _write_draft(make)
    try:
        paths = {name: folder / f"{name}.npy" for name in names}
        fingerprint = digest_of_arrays(header, paths.values())
        if time.time_ns() - changed >= _SETTLED and folder.parent == cache_dir():
            with contextlib.suppress(OSError):
                for name in names:
                    paths[name] = _publish(paths[name], f"{fingerprint}.{name}.npy")
                _write_entry(signature, header, fingerprint, paths)
        return CachedArrays(header, {name: MappedArray(path) for name, path in paths.items()}, fingerprint)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def code_hash(*paths: str | None) -> str:
    """SHA-256 of source files and of all source files in folders: data that other code has made do not count."""
    digest = hashlib.sha256()
    for path in map(Path, filter(None, paths)):
        for file in sorted(path.glob("*.py")) if path.is_dir() else [path]:
            digest.update(file.read_bytes())
    return digest.hexdigest()


def digest_of_arrays(header: Mapping[str, Any], paths: Iterable[Path]) -> str:
    """SHA-256 (hex) of a header and of the arrays in files, with their shapes and types."""
    digest = hashlib.sha256(json.dumps(header, sort_keys=True).encode())
    for path in paths:
        with path.open("rb") as file:
            shape, dtype = _array_header(file)
            digest.update(json.dumps([shape, dtype.str]).encode())
            while part := file.read(_READ):
                digest.update(part)
    return digest.hexdigest()


def _array_header(file: IO[bytes]) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Shape and type of the array in a file, which then stands at its first byte."""
    np.lib.format.read_magic(file)
    shape, _, dtype = np.lib.format.read_array_header_1_0(file)
    return shape, dtype


def _write_draft(make: Make) -> tuple[Path, dict[str, Any]]:
    """The folder in which `make` has written its arrays, beside the cache's files where possible; and the header."""
    parents = [Path(tempfile.gettempdir())]
    with contextlib.suppress(RuntimeError):  # there is no home folder
        parents.insert(0, cache_dir())
    failure = None
    for parent in parents:
        folder = None
        try:
            parent.mkdir(parents=True, exist_ok=True)
            _delete_abandoned(parent)
            folder = Path(tempfile.mkdtemp(dir=parent, prefix=_DRAFT))
            return folder, json.loads(json.dumps(make(folder)))
        except BaseException as error:
            if folder is not None:
                shutil.rmtree(folder, ignore_errors=True)
            if not isinstance(error, OSError):
                raise
            failure = error
    raise UsageError(
        f"a tokenised text must be written somewhere, but that failed: {failure}; make room, or set SWAPFORMER_CACHE "
        "to a folder that has some"
    )


def _delete_abandoned(parent: Path) -> None:
    """Remove the drafts of processes that were killed."""
    for path in parent.glob(f"{_DRAFT}*"):
        with contextlib.suppress(OSError):
            if time.time() - path.stat().st_mtime > _ABANDONED:
                shutil.rmtree(path, ignore_errors=True)


def _load(signature: str, names: Sequence[str]) -> CachedArrays | None:
    try:
        entry = json.loads((cache_dir() / f"{signature}.json").read_text(encoding="utf-8"))
        if entry.pop("checksum") != _checksum(entry):
            return None
        header, fingerprint = entry["header"], entry["fingerprint"]
        paths = {name: cache_dir() / f"{fingerprint}.{name}.npy" for name in names}
        if _seals(paths) != entry["seals"]:
            if digest_of_arrays(header, paths.values()) != fingerprint:
                return None
            _write_entry(signature, header, fingerprint, paths)
        return CachedArrays(header, {name: MappedArray(path) for name, path in paths.items()}, fingerprint)
    except Exception:  # damage has many forms, and all mean the same
        return None


def _seals(paths: Mapping[str, Path]) -> dict[str, list[int]]:
    stats = {name: path.stat() for name, path in paths.items()}
    return {name: [stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns] for name, stat in stats.items()}


def _checksum(entry: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(entry, sort_keys=True).encode()).hexdigest()


def _publish(path: Path, name: str) -> Path:
    final = cache_dir() / name
    with path.open("rb") as file:
        os.fsync(file.fileno())
    os.replace(path, final)
    return final


def _write_entry(signature: str, header: Mapping[str, Any], fingerprint: str, paths: Mapping[str, Path]) -> None:
    entry = {"header": header, "fingerprint": fingerprint, "seals": _seals(paths)}
    entry["checksum"] = _checksum(entry)
    with contextlib.suppress(OSError), tempfile.TemporaryDirectory(dir=cache_dir(), prefix=_DRAFT) as folder:
        path = Path(folder, "entry")
        path.write_text(json.dumps(entry), encoding="utf-8")
        os.replace(path, cache_dir() / f"{signature}.json")
