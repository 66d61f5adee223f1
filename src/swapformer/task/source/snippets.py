"""Snippets of Python source that say where they are from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from swapformer.task.base import whole_number
from swapformer.task.source.base import Source, Stamp, missing_column, stamp_of_files
from swapformer.task.source.document import Document, Row, TextFile
from swapformer.task.source.library import Library, package_of

COLUMNS = ("package",)


class Snippets(Source):
    """Pieces of `lines` lines of the standard library's source; the column `package` says which package each is from.

    Pieces do not overlap, and those of white space are left out. All of a file are in one split, decided by the file's
    name as Library does: what one task on the library is judged on, no other one with the same task.split trains on.
    `packages`: those that are told apart.
    UsageError: a package that this Python's library does not have.
    """

    description = "the snippets of the Python standard library"
    min_count = Library.min_count

    def __init__(self, *, packages: Sequence[str], lines: int) -> None:
        self.lines = whole_number("source.lines", lines, 1)
        self.files = Library(packages=packages).files

    def documents(self, columns: Sequence[str] = ()) -> Iterator[Document]:
        for column in columns:
            if column not in COLUMNS:
                raise missing_column(self.description, column, COLUMNS)
        for name, path in self.files:
            lines = TextFile(path, key=name).text().splitlines(keepends=True)
            for start in range(0, len(lines), self.lines):
                text = "".join(lines[start : start + self.lines])
                if text.strip():
                    yield Row(f"{name}, line {start + 1}", text, {"package": package_of(name)}, key=name)

    def stamp(self) -> Stamp:
        facts, changed = stamp_of_files(path for _, path in self.files)
        return Stamp([facts, self.lines], changed)
