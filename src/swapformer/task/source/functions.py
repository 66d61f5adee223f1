"""Documented functions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property

from swapformer.task.code import Parsed, functions
from swapformer.task.source.base import Source, Stamp, missing_column, stamp_of_files
from swapformer.task.source.document import Document, Row, TextFile
from swapformer.task.source.library import Library

COLUMNS = ("name",)


class Functions(Source):
    """The docstrings of the standard library's functions; the column `name` says what each function is called.

    All of a file are in one split, decided by the file's name as Library does. Of equal docstrings the first alone is
    kept, wherever the others are, so that no split has one of another's; names such as __init__ are left out.
    `packages`: the folders whose files are read (null: all, and what lies in none).
    """

    description = "the documented functions of the Python standard library"
    min_count = Library.min_count

    def __init__(self, *, packages: Sequence[str] | None = None) -> None:
        self.files = Library(packages=packages).files

    def documents(self, columns: Sequence[str] = ()) -> Iterator[Document]:
        for column in columns:
            if column not in COLUMNS:
                raise missing_column(self.description, column, COLUMNS)
        return iter(self._rows)

    @cached_property
    def _rows(self) -> list[Row]:
        found: dict[str, Row] = {}
        for name, path in self.files:
            file = TextFile(path, key=name)
            for line, function, docstring in functions(Parsed(file.text(), file.name)):
                found.setdefault(docstring, Row(f"{name}, line {line}", docstring, {"name": function}, key=name))
        return list(found.values())

    def stamp(self) -> Stamp:
        return stamp_of_files(path for _, path in self.files)
