"""Real text that every machine has."""

from __future__ import annotations

import os
import sysconfig
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from swapformer.errors import UsageError, suggest
from swapformer.task.source.base import Source, Stamp, no_columns, stamp_of_files
from swapformer.task.source.document import Document, TextFile

_NOT_SOURCE = {"test", "tests", "idle_test", "site-packages", "dist-packages", "lib2to3", "__pycache__"}


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
        root = Path(sysconfig.get_path("stdlib"))
        files = []
        for folder, subfolders, names in os.walk(root):
            subfolders[:] = [name for name in subfolders if name not in _NOT_SOURCE and not name.startswith("config-")]
            for name in names:
                if name.endswith(".py") and not name.startswith("_sysconfigdata"):
                    path = Path(folder, name)
                    files.append((path.relative_to(root).as_posix(), path))
        if not files:
            raise UsageError(
                f"the Python standard library's source is not in {root}; take texts of your own, task/source=files"
            )
        chosen = None if packages is None else _packages(packages, {package_of(name) for name, _ in files})
        self.files = tuple(sorted(file for file in files if chosen is None or package_of(file[0]) in chosen))
        """Names relative to the library, with their files."""

    def documents(self, columns: Sequence[str] = ()) -> Iterator[Document]:
        if columns:
            raise no_columns(self.description, columns)
        return (TextFile(path, key=name) for name, path in self.files)

    def stamp(self) -> Stamp:
        return stamp_of_files(path for _, path in self.files)


def package_of(name: str) -> str:
    """The package that a file of the library belongs to; nothing where it is a module of its own."""
    return name.partition("/")[0] if "/" in name else ""


def _packages(given: object, known: set[str]) -> set[str]:
    names = list(given) if isinstance(given, Iterable) and not isinstance(given, str) else [given]
    for name in names:
        if name not in known or not name:
            raise UsageError(
                "task.source.packages must be packages of this Python's standard library, but "
                f"{name!r} is none{suggest(str(name), known - {''})}"
            )
    return {str(name) for name in names}
