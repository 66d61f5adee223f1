"""A source of the user's own texts: files, folders and patterns, text or tables."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from swapformer.errors import UsageError
from swapformer.task.base import Split
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
from swapformer.task.source.saved_dataset import saved_files, saved_splits
from swapformer.task.source.tables import table_reader


class Files(Source):
    """A file, a folder (all in it that is not hidden) or a pattern such as a/**/*.md, in the order of names.

    Each text file is a document, and so is each row of a table (.jsonl, .ndjson, .csv, .tsv, .parquet, .arrow,
    .feather), whose text is in `column`. What gzip has packed is unpacked. Of a folder that Hugging Face's
    `save_to_disk` has written, only the rows are read. `joined`: the text files are one document, one after another.
    `val`, `test`: what is evaluated on, as files of their own; all of `path` is trained on then.
    UsageError: there is nothing at `path`; a table without `column`, or `column` without a table; a malformed row; a
    file that is no text; a folder of several splits.
    """

    def __init__(
        self, *, path: str, val: str | None = None, test: str | None = None, column: str | None = None,
        joined: bool = False,
    ) -> None:  # fmt: skip
        self.description, self.column = repr(path), column
        given = {"path": path, "val": val, "test": test}
        parts = {name: found_files(f"task.source.{name}", at) for name, at in given.items() if at is not None}
        require_apart(parts)
        if val is None and test is not None:
            raise UsageError(
                "task.source.test must have a validation beside it, but task.source.val is null; give both"
            )
        named: dict[str, Split] = {"path": "train", "val": "val", "test": "test"}
        self._splits = {} if val is None else {file: named[name] for name in parts for file in parts[name]}
        self.files = tuple(file for files in parts.values() for file in files)
        tables = [file for file in self.files if table_reader(file)]
        if tables and column is None:
            raise UsageError(
                f"task.source.column must name the column of {str(tables[0])!r} that holds the text, but is null"
                f"{_offer(tables[0])}"
            )
        if column is not None and not tables:
            raise no_columns(self.description, [column])
        self.joined = joined
        if self.joined and tables:
            raise UsageError(f"only text files can be joined, but {str(tables[0])!r} is a table; set joined=false")

    @property
    def own_shares(self) -> tuple[float, float, float] | None:
        return (1.0, 1.0, float("test" in self._splits.values())) if self._splits else None

    def documents(self, columns: Sequence[str] = ()) -> Iterator[Document]:
        if not self.joined:
            return (document for file in self.files for document in self._documents(file, columns))
        splits = dict.fromkeys(self._splits.get(file) for file in self.files)
        return iter(
            JoinedDocument(
                self.description, [TextFile(file) for file in self.files if self._splits.get(file) == split], split
            )
            for split in splits
        )

    def _documents(self, file: Path, columns: Sequence[str]) -> Iterator[Document]:
        for document in self._read(file, columns):
            document.split = self._splits.get(file)
            yield document

    def _read(self, file: Path, columns: Sequence[str]) -> Iterator[Document]:
        reader = table_reader(file)
        if reader is None:
            if columns:
                raise no_columns(repr(str(file)), columns)
            yield TextFile(file)
            return
        assert self.column is not None, "a table without a column is refused"
        wanted = list(dict.fromkeys([self.column, *columns]))
        for location, row in reader(file, wanted):
            require_columns(location, wanted, row)
            text = text_of(location, self.column, row[self.column])
            yield TextRow(location, text, {name: row[name] for name in columns})

    def stamp(self) -> Stamp:
        facts, changed = stamp_of_files(self.files)
        own = [[str(file), split] for file, split in self._splits.items()]
        return Stamp([facts, self.column, self.joined, *([own] if own else [])], changed)


def text_of(location: str, column: str, value: Any) -> str:
    """The text in a column; UsageError where it is something else."""
    if not isinstance(value, str):
        found = "null" if value is None else f"{value!r:.40}"
        raise UsageError(f"the column {column!r} must hold text, but at {location} it is {found}; correct that row")
    return value


def _offer(table: Path) -> str:
    """The columns of a table, as the end of a message; nothing where it cannot be read."""
    reader = table_reader(table)
    assert reader is not None, "it is a table"
    try:
        _, row = next(reader(table, []))
    except (UsageError, StopIteration):
        return ""
    return f"; it has {', '.join(map(str, row))}"


def found_files(setting: str, at: str) -> tuple[Path, ...]:
    """The files that a file, a folder or a pattern leads to, by name. UsageError names the setting if there is none."""
    try:
        files = {file.as_posix(): file for file in _find(Path(str(at)).expanduser(), setting) if file.is_file()}
    except (OSError, RuntimeError) as error:
        raise UsageError(f"{setting} must be readable, but {at!r} is not: {error}") from None
    if not files:
        raise UsageError(f"{setting} must lead to at least one file, but {at!r} has none")
    return tuple(files[name] for name in sorted(files))


def require_apart(parts: Mapping[str, Iterable[Path]]) -> None:
    """UsageError where a file is in two of the parts, which are named by their settings."""
    owner: dict[Path, str] = {}
    for name, files in parts.items():
        for file in files:
            if (other := owner.setdefault(file.resolve(), name)) != name:
                raise UsageError(
                    f"{str(file)!r} must be in one split, but task.source.{other} and task.source.{name} both lead to "
                    "it; change one of them"
                )


def _find(path: Path, setting: str) -> Iterable[Path]:
    if path.is_file():
        return [path]
    if path.is_dir():
        return _files_below(path, setting)
    if glob.has_magic(str(path)):
        return map(Path, glob.glob(str(path), recursive=True))
    raise UsageError(
        f"{setting} must be a file, a folder or a pattern, but there is nothing at {str(path.absolute())!r}"
    )


def _files_below(top: Path, setting: str) -> Iterator[Path]:
    """All in a folder that is not hidden; of a saved data set only its rows' files."""
    for name, folders, files in os.walk(top, onerror=_raise):
        folder = Path(name)
        if splits := saved_splits(folder):
            raise UsageError(
                f"{setting} must lead to one split, but {name!r} is a data set of {', '.join(splits)}; say "
                f"{setting}={folder / splits[0]}"
            )
        rows = saved_files(folder)
        if rows is not None:
            folders.clear()
            yield from rows
            continue
        folders[:] = [each for each in folders if not each.startswith(".")]
        yield from (folder / each for each in files if not each.startswith("."))


def _raise(error: OSError) -> NoReturn:
    raise error
