"""A source of the user's own texts: files, folders and patterns, text or tables."""

from __future__ import annotations

import csv
import glob
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from swapformer.errors import UsageError
from swapformer.task.settings import boolean
from swapformer.task.source.base import (
    Document,
    JoinedDocument,
    Source,
    Stamp,
    TextFile,
    TextRow,
    no_columns,
    require_columns,
    stamp_of_files,
)
from swapformer.yaml_reader import parse_foreign_json

Rows = Iterator[tuple[str, dict[str, Any]]]
Reader = Callable[[Path, Sequence[str]], Rows]

_BATCH = 1000
_LONGEST_FIELD = 2**31 - 1


def json_lines(path: Path, columns: Sequence[str]) -> Rows:
    """One JSON object a line; lines without anything are passed over."""
    for location, line in _lines(path):
        if not line.strip():
            continue
        try:
            row = parse_foreign_json(line)
        except ValueError as error:
            raise UsageError(f"{location} must be JSON, but: {error}; correct that line") from None
        if not isinstance(row, dict):
            raise UsageError(f'{location} must be a JSON object such as {{"text": …}}, but is {line.strip()!r:.40}')
        yield location, row


def separated(path: Path, columns: Sequence[str], delimiter: str) -> Rows:
    """Values between commas or tabs (RFC 4180), the columns' names in the first line."""
    lines = (line for _, line in _lines(path))
    reader = csv.reader(lines, delimiter=delimiter, strict=True)
    names: list[str] | None = None
    while True:
        limit = csv.field_size_limit(_LONGEST_FIELD)  # of the whole process, so only for as long as it takes
        try:
            values = next(reader, None)
        except csv.Error as error:
            raise UsageError(f"{_line(path, reader.line_num)} must be a row of values, but: {error}") from None
        finally:
            csv.field_size_limit(limit)
        if values is None:
            return
        location = _line(path, reader.line_num)
        if names is None:
            names = values
            require_columns(location, columns, names)
        elif values:
            if len(values) != len(names):
                raise UsageError(
                    f"{location} must have {len(names)} values, as the first line has, but has {len(values)}"
                )
            yield location, dict(zip(names, values, strict=True))


def parquet(path: Path, columns: Sequence[str]) -> Rows:
    """Apache parquet, a batch of rows at a time."""
    import pyarrow  # type: ignore[import-untyped]  # a fifth of a second, only for those who have such files
    from pyarrow.parquet import ParquetFile  # type: ignore[import-untyped]

    try:
        with ParquetFile(path) as file:
            names = file.schema_arrow.names
            require_columns(repr(str(path)), columns, names)
            number = 0
            for batch in file.iter_batches(_BATCH, columns=list(columns) or names):
                for row in batch.to_pylist():
                    number += 1
                    yield f"{str(path)!r}, row {number}", row
    except (pyarrow.ArrowException, OSError) as error:
        raise UsageError(f"{str(path)!r} must be a parquet file, but: {' '.join(str(error).split())}") from None


TABLES: dict[str, Reader] = {
    ".jsonl": json_lines,
    ".ndjson": json_lines,
    ".csv": partial(separated, delimiter=","),
    ".tsv": partial(separated, delimiter="\t"),
    ".parquet": parquet,
}
"""Which reader a file name's ending asks for."""


def _line(path: Path, number: int) -> str:
    return f"{str(path)!r}, line {number}"


def _lines(path: Path) -> Iterator[tuple[str, str]]:
    """The lines of a file with their locations; a byte order mark at its beginning is none of the text."""
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, 1):
                location = _line(path, number)
                try:
                    yield location, line.decode("utf-8-sig" if number == 1 else "utf-8")
                except UnicodeDecodeError as error:
                    raise UsageError(f"{location} must be UTF-8, but {error.reason}; convert the file") from None
    except OSError as error:
        raise UsageError(f"a table must be readable, but {str(path)!r} is not: {error.strerror}") from None


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
        self.joined = boolean("source.joined", joined)
        if self.joined and tables:
            raise UsageError(f"only text files can be joined, but {str(tables[0])!r} is a table; set joined=false")

    def documents(self, columns: Sequence[str] = ()) -> Iterator[Document]:
        if self.joined:
            return iter([JoinedDocument(self.description, [TextFile(file) for file in self.files])])
        return (document for file in self.files for document in self._documents(file, columns))

    def _documents(self, file: Path, columns: Sequence[str]) -> Iterator[Document]:
        if file.suffix.lower() not in TABLES:
            if columns:
                raise no_columns(repr(str(file)), columns)
            yield TextFile(file)
            return
        assert self.column is not None, "a table without a column is refused"
        wanted = list(dict.fromkeys([self.column, *columns]))
        for location, row in TABLES[file.suffix.lower()](file, wanted):
            require_columns(location, wanted, row)
            text = text_of(location, self.column, row[self.column])
            yield TextRow(location, text, {name: row[name] for name in columns})

    def stamp(self) -> Stamp:
        facts, changed = stamp_of_files(self.files)
        return Stamp([facts, self.column, self.joined], changed)


def text_of(location: str, column: str, value: Any) -> str:
    """The text in a column; UsageError where it is something else."""
    if not isinstance(value, str):
        found = "null" if value is None else f"{value!r:.40}"
        raise UsageError(f"the column {column!r} must hold text, but at {location} it is {found}; correct that row")
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
