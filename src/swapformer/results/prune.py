"""Making room in a store: checkpoints, or whole trials. What a process is running is never touched."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from swapformer.results.record import Record
from swapformer.results.store import Store

_PRUNED = ".pruned-"


@dataclass(frozen=True)
class Waste:
    """The files that pruning one trial would remove."""

    record: Record
    paths: tuple[Path, ...]
    bytes: int


def find_waste(store: Store, records: Sequence[Record], whole: bool) -> Iterator[Waste]:
    """The files to remove of each of `records`: its checkpoints, those set aside too, or all of it."""
    for record in records:
        folder = store.directory(record.id)
        if store.locked(record.id):
            continue
        paths = (folder,) if whole else tuple(sorted(folder.glob("checkpoints*")))
        if paths:
            yield Waste(record, paths, sum(map(_size, paths)))


def remove(store: Store, waste: Waste) -> bool:
    """Remove it, checkpoints first; False when a process has taken up the trial since.

    A trial that is to go whole is renamed before: a folder that is half gone must not be taken for a trial.
    """
    folder = store.directory(waste.record.id)
    with store.lock(waste.record.id) as mine:
        if not mine:
            return False
        for path in folder.glob("checkpoints*"):
            _remove(path)
        if folder in waste.paths:
            os.replace(folder, store.trials / f"{_PRUNED}{folder.name}-{secrets.token_hex(6)}")
    for pruned in store.trials.glob(f"{_PRUNED}*"):  # of an earlier command that was killed, too
        _remove(pruned)
    return True


def _remove(path: Path) -> None:
    """Remove a folder, or what stands where one should be."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with suppress(OSError):
            path.unlink()


def _size(path: Path) -> int:
    """Bytes of the files under `path`, or of `path` itself."""
    found = 0 if path.is_dir() else os.lstat(path).st_size
    for where, _, names in os.walk(path):
        for name in names:
            try:
                found += os.lstat(os.path.join(where, name)).st_size
            except OSError:
                continue  # it went meanwhile
    return found
