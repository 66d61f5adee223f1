"""What a source is: documents in a fixed order, read piece by piece, and a stamp that changes when they may have."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from swapformer.errors import UsageError
from swapformer.task.source.document import Document


class Stamp(NamedTuple):
    """What identifies a source's content without reading it.

    `facts`: JSON, the same as long as nothing has changed. `changed`: nanoseconds since 1970 of the latest change.
    """

    facts: list[Any]
    changed: int


class Source(ABC):
    """Documents in a fixed order. A task has one, chosen by `task/source`.

    `description`: what messages call it. `min_count`: how often a character must occur to be a symbol of its own, where
    the tokeniser does not say.
    """

    description: str
    min_count: int = 1

    @abstractmethod
    def documents(self, columns: Sequence[str] = ()) -> Iterator[Document]:
        """Every document in order, with the values of further `columns` where it is a row of a table.

        UsageError: what is there cannot be read, or a column is missing.
        """

    @abstractmethod
    def stamp(self) -> Stamp:
        """What changes when the documents may have; quick, and nothing heavy is imported for it."""


def stamp_of_files(files: Iterable[Path]) -> Stamp:
    """The places, sizes and times of files."""
    stats = [(str(path.absolute()), path.stat()) for path in files]
    facts = [[path, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns] for path, stat in stats]
    return Stamp(facts, max((max(stat.st_mtime_ns, stat.st_ctime_ns) for _, stat in stats), default=0))


def no_columns(document: str, columns: Sequence[str]) -> UsageError:
    """The error for columns asked of a text."""
    return UsageError(
        f"the column {columns[0]!r} must be in a table (JSON-lines, CSV, TSV, parquet, Hugging Face), but {document} "
        "is plain text; give a table"
    )


def missing_column(place: str, column: str, known: Iterable[object]) -> UsageError:
    """The error for a column that a table does not have."""
    return UsageError(
        f"{place} must have the column {column!r}, but its columns are {', '.join(map(str, known)) or 'none'}; "
        "name one of them"
    )
