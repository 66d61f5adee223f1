"""Files that are either whole or absent, whatever kills the process that writes them."""

from __future__ import annotations

import os
from pathlib import Path

TEMPORARY = ".tmp-"


def write_atomic(path: Path, text: str) -> None:
    """Replace `path` by `text`: a reader, or the next process after a crash, sees the old content or the new one.

    Raises OSError as `open` and `os.replace` do (disk full, no permission).
    """
    temporary = path.with_name(f"{TEMPORARY}{path.name}.{os.getpid()}")
    with temporary.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Make a rename inside `folder` survive a power cut (POSIX: the directory has to be synced itself)."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def clear_temporaries(folder: Path) -> None:
    """Remove what killed writers left behind; only the holder of the folder's claim may call this."""
    for leftover in folder.glob(f"{TEMPORARY}*"):
        leftover.unlink(missing_ok=True)


def set_aside(path: Path) -> Path:
    """Rename `path` to `<name>.corrupt-<n>`, with the first free n, and return the new path."""
    number = 1
    while (aside := path.with_name(f"{path.name}.corrupt-{number}")).exists():
        number += 1
    os.replace(path, aside)
    return aside
