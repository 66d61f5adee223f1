"""Files that a power cut leaves as they were, or as they became."""

from __future__ import annotations

import os
from pathlib import Path


def sync(path: Path) -> None:
    """Have the disk hold what a file contains, or which files a folder has."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def move(draft: Path, path: Path) -> None:
    """Replace `path` by a finished draft in the same folder: whole or not at all, whatever happens."""
    sync(draft)
    draft.replace(path)
    sync(path.parent)
