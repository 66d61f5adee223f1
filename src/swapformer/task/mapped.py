"""Arrays in files: mapped into memory, and known by what they hold."""

from __future__ import annotations

import hashlib
import json
import mmap
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

_READ = 1 << 20
"""Bytes that are read at a time."""


class Mapped:
    """An array in a file, `array`, of which only what has been read is in memory."""

    def __init__(self, path: Path) -> None:
        with path.open("rb") as file:
            shape, dtype = form(file)
            self._mapping = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            self.array: NDArray[Any] = np.ndarray(shape, dtype, self._mapping, offset=file.tell())

    def release(self) -> None:
        """Give back the memory of what has been read; the system keeps what it has room for."""
        if hasattr(mmap, "MADV_DONTNEED"):
            self._mapping.madvise(mmap.MADV_DONTNEED)


def form(file: IO[bytes]) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Shape and type of the array in a file, which then stands at its first byte."""
    np.lib.format.read_magic(file)
    shape, _, dtype = np.lib.format.read_array_header_1_0(file)
    return shape, dtype


def digest_of(header: Mapping[str, Any], paths: Iterable[Path]) -> str:
    """SHA-256 (hex) of a header and of the arrays in files, with their shapes and types."""
    digest = hashlib.sha256(json.dumps(header, sort_keys=True).encode())
    for path in paths:
        with path.open("rb") as file:
            shape, dtype = form(file)
            digest.update(json.dumps([shape, dtype.str]).encode())
            while part := file.read(_READ):
                digest.update(part)
    return digest.hexdigest()
