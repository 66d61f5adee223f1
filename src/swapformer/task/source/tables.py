"""Rows of tables, one at a time, each with its place: malformed lines name file and line."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from swapformer.errors import UsageError
from swapformer.task.source.base import missing_column

Rows = Iterator[tuple[str, dict[str, Any]]]
Reader = Callable[[Path, Sequence[str]], Rows]

_BATCH = 1000
_LONGEST_FIELD = 2**31 - 1


def json_lines(path: Path, columns: Sequence[str]) -> Rows:
    """One JSON object a line; lines without anything are passed over."""
    for place, line in _lines(path):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except ValueError as error:
            raise UsageError(f"{place} must be JSON, but: {error}; correct that line") from None
        if not isinstance(row, dict):
            raise UsageError(f'{place} must be a JSON object such as {{"text": …}}, but is {line.strip()!r:.40}')
        yield place, row


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
        place = _line(path, reader.line_num)
        if names is None:
            names = values
            _require(place, names, columns)
        elif values:
            if len(values) != len(names):
                raise UsageError(f"{place} must have {len(names)} values, as the first line has, but has {len(values)}")
            yield place, dict(zip(names, values, strict=True))


def parquet(path: Path, columns: Sequence[str]) -> Rows:
    """Apache parquet, a batch of rows at a time."""
    import pyarrow  # type: ignore[import-untyped]  # a fifth of a second, only for those who have such files
    from pyarrow.parquet import ParquetFile  # type: ignore[import-untyped]

    try:
        with ParquetFile(path) as file:
            names = file.schema_arrow.names
            _require(repr(str(path)), names, columns)
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


def _require(place: str, names: Sequence[str], columns: Sequence[str]) -> None:
    for column in columns:
        if column not in names:
            raise missing_column(place, column, names)


def _line(path: Path, number: int) -> str:
    return f"{str(path)!r}, line {number}"


def _lines(path: Path) -> Iterator[tuple[str, str]]:
    """The lines of a file with their places; a byte order mark at its beginning is none of the text."""
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, 1):
                place = _line(path, number)
                try:
                    yield place, line.decode("utf-8-sig" if number == 1 else "utf-8")
                except UnicodeDecodeError as error:
                    raise UsageError(f"{place} must be UTF-8, but {error.reason}; convert the file") from None
    except OSError as error:
        raise UsageError(f"a table must be readable, but {str(path)!r} is not: {error.strerror}") from None
