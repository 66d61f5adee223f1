"""Sources that every machine has: the Python standard library, whole, in snippets, or its docstrings."""

from __future__ import annotations

import os
import sysconfig
from collections.abc import Iterable, Iterator, Sequence
from functools import cache, cached_property
from operator import itemgetter
from pathlib import Path

from swapformer.errors import UsageError, suggest
from swapformer.ranges import Count
from swapformer.task.python_syntax import ParsedSource, documented_functions
from swapformer.task.source.base import (
    Document,
    Source,
    Stamp,
    TextFile,
    TextRow,
    no_columns,
    require_columns,
    stamp_of_files,
)

NOT_SOURCE = {"test", "tests", "idle_test", "site-packages", "dist-packages", "lib2to3", "__pycache__"}


class Library(Source):
    """The Python standard library's source: every .py file but tests, what pip installed and what the build wrote.

    A file's split is decided by its name, so that it is the same whatever the version of Python.
    `packages`: the folders whose files are read (null: all, and what lies in none).
    UsageError: this Python came without its source, or has no such package.
    """

    description = "the Python standard library"
    min_count = 100
    """Rarer characters differ between versions of Python."""

    def __init__(self, *, packages: Sequence[str] | None = None) -> None:
        root = sysconfig.get_path("stdlib")
        files = _files_below(root)
        if not files:
            raise UsageError(
                f"the Python standard library's source is not in {root}; take texts of your own, task/source=files"
            )
        chosen = None if packages is None else _packages(packages, {package_of(name) for name, _ in files})
        self.files = tuple(file for file in files if chosen is None or package_of(file[0]) in chosen)
        """Names relative to the library, with their files."""

    def documents(self, columns: Sequence[str] = ()) -> Iterator[Document]:
        if columns:
            raise no_columns(self.description, columns)
        return (TextFile(path, key=name) for name, path in self.files)

    def stamp(self) -> Stamp:
        return stamp_of_files(path for _, path in self.files)


@cache
def _files_below(root: str) -> tuple[tuple[str, Path], ...]:
    """The files of a library by their names in it, in order; a library does not change while Python runs."""
    found = []
    for folder, subfolders, names in os.walk(root):
        subfolders[:] = [name for name in subfolders if name not in NOT_SOURCE and not name.startswith("config-")]
        inside = folder[len(root) :].replace(os.sep, "/").strip("/")
        for name in names:
            if name.endswith(".py") and not name.startswith("_sysconfigdata"):
                found.append((f"{inside}/{name}" if inside else name, Path(folder, name)))
    return (*sorted(found, key=itemgetter(0)),)


def package_of(name: str) -> str:
    """The package that a file of the library belongs to; empty for a single module."""
    return name.partition("/")[0] if "/" in name else ""


def _packages(given: object, known: set[str]) -> set[str]:
    names = list(given) if isinstance(given, Iterable) and not isinstance(given, str) else [given]
    for name in names:
        if name not in known or not name:
            raise UsageError(
                "task.source.packages must be packages of this Python's standard library, but "
                f"{name!r} is not one{suggest(str(name), known - {''})}"
            )
    return {str(name) for name in names}


_SNIPPET_COLUMNS = ("package",)


class Snippets(Library):
    """Pieces of `lines` lines of the standard library's source; the column `package` says which package each is from.

    Pieces do not overlap, and those of white space are left out. All of a file are in one split, decided by the file's
    name as Library does: what one task on the library is judged on, no other one with the same task.split trains on.
    `packages`: those that are told apart.
    UsageError: a package that this Python's library does not have.
    """

    description = "the snippets of the Python standard library"

    def __init__(self, *, packages: Sequence[str], lines: Count) -> None:
        super().__init__(packages=packages)
        self.lines = lines

    def documents(self, columns: Sequence[str] = ()) -> Iterator[Document]:
        require_columns(self.description, columns, _SNIPPET_COLUMNS)
        for name, path in self.files:
            lines = TextFile(path, key=name).text().splitlines(keepends=True)
            for start in range(0, len(lines), self.lines):
                text = "".join(lines[start : start + self.lines])
                if text.strip():
                    yield TextRow(f"{name}, line {start + 1}", text, {"package": package_of(name)}, key=name)

    def stamp(self) -> Stamp:
        facts, changed = super().stamp()
        return Stamp([facts, self.lines], changed)


_FUNCTION_COLUMNS = ("name",)


class Functions(Library):
    """The docstrings of the standard library's functions; the column `name` says what each function is called.

    All of a file are in one split, decided by the file's name as Library does. Of equal docstrings only the first is
    kept, wherever the others are, so that no split has one of another's; names such as __init__ are left out.
    `packages`: the folders whose files are read (null: all, and what lies in none).
    """

    description = "the documented functions of the Python standard library"

    def documents(self, columns: Sequence[str] = ()) -> Iterator[Document]:
        require_columns(self.description, columns, _FUNCTION_COLUMNS)
        return iter(self._rows)

    @cached_property
    def _rows(self) -> list[TextRow]:
        found: dict[str, TextRow] = {}
        for name, path in self.files:
            file = TextFile(path, key=name)
            for line, function, docstring in documented_functions(ParsedSource(file.text(), file.name)):
                found.setdefault(docstring, TextRow(f"{name}, line {line}", docstring, {"name": function}, key=name))
        return list(found.values())
