"""The user's own texts: files, folders, patterns."""

from __future__ import annotations

import glob
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from swapformer.errors import UsageError
from swapformer.task.base import presence
from swapformer.task.source.base import Source, Stamp, missing_column, no_columns, stamp_of_files
from swapformer.task.source.document import Document, Joined, Row, TextFile
from swapformer.task.source.tables import TABLES


class Files(Source):
    """A file, a folder (all in it that is not hidden) or a pattern such as a/**/*.md, in the order of names.

    Each text file is a document, and so is each row of a table (.jsonl, .ndjson, .csv, .tsv, .parquet), whose text is
    in `column`. `joined`: the text files are one document, one after another.
    UsageError: there is nothing at `path`; a table without `column`, or `column` without a table; a malformed row.
    """

    def __init__(self, *, path: str, column: str | None = None, joined: bool = False) -> None:
        self.description, self.column = repr(path), column
        try:
            files = {file.as_posix(): file for file in _find(Path(str(path)).expanduser()) if file.is_file()}
        except (OSError, RuntimeError) as error:
            raise UsageError(f"task.source.path must be readable, but {path!r} is not: {error}") from None
        self.files = tuple(files[name] for name in sorted(files))
        if not self.files:
            raise UsageError(f"task.source.path must lead to at least one file, but {path!r} has none")
        tables = [file for file in self.files if file.suffix.lower() in TABLES]
        if tables and column is None:
            raise UsageError(
                f"task.source.column must name the column of {str(tables[0])!r} that holds the text, but is null"
                f"{_offer(tables[0])}"
            )
        if column is not None and not tables:
            raise no_columns(self.description, [column])
        self.joined = presence("source.joined", joined)
        if self.joined and tables:
            raise UsageError(f"only text files can be joined, but {str(tables[0])!r} is a table; set joined=false")

    def documents(self, columns: Sequence[str] = ()) -> Iterator[Document]:
        if self.joined:
            return iter([Joined(self.description, [TextFile(file) for file in self.files])])
        return (document for file in self.files for document in self._documents(file, columns))

    def _documents(self, file: Path, columns: Sequence[str]) -> Iterator[Document]:
        if file.suffix.lower() not in TABLES:
            if columns:
                raise no_columns(repr(str(file)), columns)
            yield TextFile(file)
            return
        assert self.column is not None, "a table without a column is refused"
        wanted = list(dict.fromkeys([self.column, *columns]))
        for place, row in TABLES[file.suffix.lower()](file, wanted):
            for name in wanted:
                if name not in row:
                    raise missing_column(place, name, row)
            yield Row(place, text_of(place, self.column, row[self.column]), {name: row[name] for name in columns})

    def stamp(self) -> Stamp:
        facts, changed = stamp_of_files(self.files)
        return Stamp([facts, self.column, self.joined], changed)


def text_of(place: str, column: str, value: Any) -> str:
    """The text in a column; UsageError where it is something else."""
    if not isinstance(value, str):
        found = "null" if value is None else f"{value!r:.40}"
        raise UsageError(f"the column {column!r} must hold text, but at {place} it is {found}; correct that row")
    return value


def _offer(table: Path) -> str:
    """The columns of a table, as the end of a message; nothing where it cannot be read."""
    try:
        _, row = next(TABLES[table.suffix.lower()](table, []))
    except (UsageError, StopIteration):
        return ""
    return f"; it has {', '.join(map(str, row))}"


def _find(path: Path) -> Iterable[Path]:
    if path.is_file():
        return [path]
    if path.is_dir():
        return (file for file in path.rglob("*") if not _hidden(file.relative_to(path)))
    if glob.has_magic(str(path)):
        return map(Path, glob.glob(str(path), recursive=True))
    raise UsageError(
        f"task.source.path must be a file, a folder or a pattern, but there is nothing at {str(path.absolute())!r}"
    )


def _hidden(path: Path) -> bool:
    return any(part.startswith(".") for part in path.parts)
