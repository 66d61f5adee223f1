"""The vocabulary of a trial, `tokeniser.json`: how its task reads and writes symbols, whatever becomes of its data."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from swapformer.results.files import write_atomic


def vocabulary_path(folder: Path) -> Path:
    """The vocabulary of the trial in `folder`; a task that no tokeniser writes leaves none."""
    return folder / "tokeniser.json"


def write_vocabulary(folder: Path, text: str) -> None:
    """Keep the vocabulary of the trial in `folder`, as its task gives it, atomically."""
    write_atomic(vocabulary_path(folder), text)


def read_vocabulary(folder: Path) -> str | None:
    """The vocabulary of the trial in `folder`; None where it left none that can be read."""
    with suppress(OSError, ValueError):
        return vocabulary_path(folder).read_text(encoding="utf-8")
    return None
