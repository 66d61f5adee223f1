"""Readers of tables in files: JSON lines, values between commas or tabs, parquet and arrow."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from swapformer.errors import UsageError
from swapformer.task.source.base import require_columns, require_text, unpacked
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
    from pyarrow.parquet import ParquetFile  # type: ignore[import-untyped]

    with _refusing_damage(path, "parquet"), ParquetFile(path) as file:
        names = file.schema_arrow.names
        require_columns(repr(str(path)), columns, names)
        yield from _numbered(path, file.iter_batches(_BATCH, columns=list(columns) or names))


def arrow(path: Path, columns: Sequence[str]) -> Rows:
    """Apache arrow, as a file or as a stream, which is what Hugging Face's library writes; mapped into memory."""
    from pyarrow import ipc, memory_map  # type: ignore[import-untyped]

    with _refusing_damage(path, "arrow"), memory_map(str(path)) as held:
        is_file = held.read(6) == b"ARROW1"
        held.seek(0)
        reader = ipc.open_file(held) if is_file else ipc.open_stream(held)
        names = reader.schema.names
        require_columns(repr(str(path)), columns, names)
        batches = map(reader.get_batch, range(reader.num_record_batches)) if is_file else reader
        parts = (batch.slice(at, _BATCH) for batch in batches for at in range(0, batch.num_rows, _BATCH))
        yield from _numbered(path, (part.select(list(columns) or names) for part in parts))


@contextmanager
def _refusing_damage(path: Path, kind: str) -> Iterator[None]:
    import pyarrow  # a fifth of a second, only for those who have such files

    try:
        yield
    except (pyarrow.ArrowException, OSError) as error:
        raise UsageError(f"{str(path)!r} must be a file of {kind}, but: {' '.join(str(error).split())}") from None


def _numbered(path: Path, batches: Iterable[Any]) -> Rows:
    """The rows of arrow's batches with their locations."""
    number = 0
    for batch in batches:
        for row in batch.to_pylist():
            number += 1
            yield f"{str(path)!r}, row {number}", row


TABLES: dict[str, Reader] = {
    ".jsonl": json_lines,
    ".ndjson": json_lines,
    ".csv": partial(separated, delimiter=","),
    ".tsv": partial(separated, delimiter="\t"),
    ".parquet": parquet,
    ".arrow": arrow,
    ".feather": arrow,
}
"""Which reader a file name's ending asks for, before .gz where it has that."""


def table_reader(path: Path) -> Reader | None:
    """The reader of a file as a table; None if its name says that it is a text."""
    name = path.name.lower().removesuffix(".gz")
    return TABLES.get(Path(name).suffix)


def _line(path: Path, number: int) -> str:
    return f"{str(path)!r}, line {number}"


def _lines(path: Path) -> Iterator[tuple[str, str]]:
    """The lines of a file with their locations; a byte order mark at its beginning is left out."""
    with unpacked(path, "a table") as file:
        for number, line in enumerate(file, 1):
            location = _line(path, number)
            require_text(repr(str(path)), line, begins=number == 1)
            try:
                yield location, line.decode("utf-8-sig" if number == 1 else "utf-8")
            except UnicodeDecodeError as error:
                raise UsageError(f"{location} must be UTF-8, but {error.reason}; convert the file") from None
