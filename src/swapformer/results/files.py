"""Files that are either whole or absent, whatever kills the process that writes them."""

from __future__ import annotations

import os
import secrets
from contextlib import suppress
from pathlib import Path

from swapformer.results.durable import sync

TEMPORARY = ".tmp-"


def temporary_of(path: Path) -> Path:
    """Where to write what shall replace `path`: a name that no other writer has, on this host or another.

    A process's number would not do: in a container it is 1 for everybody.
    """
    return path.with_name(f"{TEMPORARY}{path.name}.{secrets.token_hex(6)}")


def write_atomic(path: Path, text: str) -> None:
    """Replace `path` by `text`: a reader, or the next process after a crash, sees the old content or the new one.

    Raises OSError as `open` and `os.replace` do (disk full, no permission); it names `path`.
    """
    temporary = temporary_of(path)
    try:
        with temporary.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        with suppress(OSError):
            temporary.unlink()
        raise OSError(error.errno, error.strerror, str(path)) from error
    sync(path.parent)  # a rename survives a power cut once its folder is synced


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
