"""Files of a training that a power cut leaves as they were, or as they became."""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch.plugins import TorchCheckpointIO


class InPlace(TorchCheckpointIO):
    """Writes a checkpoint into the folder that it is for.

    Lightning's own way leads through the folder for temporary files, which may be small, or full, or on another disk,
    and where a process that is killed leaves it behind. A draft may be cut: `move` makes it count.
    """

    def save_checkpoint(self, checkpoint: dict[str, Any], path: str | Path, storage_options: Any = None) -> None:
        content = io.BytesIO()  # a disk that is full is then told as such, and not as an error of the archive
        torch.save(checkpoint, content)
        Path(path).write_bytes(content.getbuffer())


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
