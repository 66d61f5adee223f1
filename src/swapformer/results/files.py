"""Writing files so that a reader, a crash or a power cut finds the old content or the new one, never a mixture."""

from __future__ import annotations

import os
import secrets
from contextlib import suppress
from pathlib import Path

TEMPORARY = ".tmp-"


def temporary_of(path: Path) -> Path:
    """Where to write what shall replace `path`: a name that no other writer has, on this host or another.

    A process's number would not do: in a container it is 1 for everybody.
    """
    return path.with_name(f"{TEMPORARY}{path.name}.{secrets.token_hex(6)}")


def write_atomic(path: Path, text: str) -> None:
    """Replace `path` by `text`, durably.

    Raises OSError as `open` and `os.replace` do (disk full, no permission); it names `path`.
    """
    temporary = temporary_of(path)
    try:
        temporary.write_text(text, encoding="utf-8")
        move(temporary, path)
    except OSError as error:
        with suppress(OSError):
            temporary.unlink()
        raise OSError(error.errno, error.strerror, str(path)) from error


def move(draft: Path, path: Path) -> None:
    """Replace `path` by a finished draft in the same folder, durably."""
    sync(draft)
    os.replace(draft, path)
    sync(path.parent)  # a rename survives a power cut once its folder is synced


def sync(path: Path) -> None:
    """Make the disk hold what a file contains, or which files a folder has."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def clear_temporaries(folder: Path) -> None:
    """Remove what killed writers left in `folder`; only the holder of the trial's lock may call this."""
    for leftover in folder.glob(f"{TEMPORARY}*"):
        leftover.unlink(missing_ok=True)


def quarantine(path: Path) -> Path:
    """Rename a damaged `path` to `<name>.corrupt-<n>`, with the first free n, and return the new path."""
    number = 1
    while (renamed := path.with_name(f"{path.name}.corrupt-{number}")).exists():
        number += 1
    os.replace(path, renamed)
    return renamed
