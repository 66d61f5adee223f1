"""Writing files so that a reader, a crash or a power cut finds the old content or the new one, never a mixture.

What stands where a file should be and is none (a folder, a link to itself) is damage, as cut content is.
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
from contextlib import suppress
from pathlib import Path

from swapformer.errors import UsageError

TEMPORARY = ".tmp-"
SET_ASIDE = ".corrupt-"
"""What stands between the name of a damaged file that was set aside and a number."""
NO_FILE = (errno.EISDIR, errno.ELOOP, errno.ENOTDIR, errno.ENXIO)
"""The system's errors for a path at which no file is, but something else."""

READ_ONLY = (errno.EROFS, errno.EACCES, errno.EPERM)
"""The system's errors for a path that may only be read."""


class CorruptFile(ValueError):
    """A stored file is damaged: it is no file, is cut or garbage, has a field of the wrong type, or is another's."""


def read_file(path: Path) -> bytes:
    """The content of a stored file.

    Raises FileNotFoundError where there is none, CorruptFile where something else stands, and UsageError where the
    system refuses, since that is no damage.
    """
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise
    except OSError as error:
        if error.errno in NO_FILE:
            raise CorruptFile(f"no file ({error.strerror})") from None
        raise UsageError(f"{path} cannot be read: {error.strerror}") from None


def temporary_of(path: Path) -> Path:
    """The file to write before it replaces `path`: a name that no other writer has, on this host or another.

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
    """Replace `path` by a finished draft in the same folder, durably; a folder that stands there is set aside."""
    sync(draft)
    if path.is_dir():
        quarantine(path)
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
    while os.path.lexists(renamed := path.with_name(f"{path.name}{SET_ASIDE}{number}")):
        number += 1
    os.replace(path, renamed)
    return renamed


def set_aside_stranger(path: Path, *, folder: bool = False) -> Path | None:
    """Quarantine what stands at `path` if it is no file, or no `folder`; the new path, or None where all is well."""
    try:
        mode = path.stat().st_mode
        sound = stat.S_ISDIR(mode) if folder else stat.S_ISREG(mode)
    except OSError:  # a link that leads nowhere, or to itself
        sound = not os.path.lexists(path)
    return None if sound else quarantine(path)
