"""A source that every installation has: the Python standard library and pinned packages of pure Python."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path, PurePosixPath

from swapformer.errors import UsageError
from swapformer.task.source.base import Document, Stamp, TextFile, stamp_of_files
from swapformer.task.source.library import NOT_SOURCE, Library

_ANYWHERE = "py3-none-any", "py2.py3-none-any"
"""The tags of wheels that are the same on every platform."""


class Installed(Library):
    """The standard library's source, as Library reads it, and that of installed packages, without their tests.

    A file's split is decided by its name, so that it is the same whatever else is read. Of files with equal content
    only the first is read, the library's before those of packages: a copy of it in another split would be known there.

    Args:
        packages: name → version of packages whose wheels are pure Python, since other wheels differ between platforms.

    Raises:
        UsageError: a package is missing, has another version, or is not pure Python.
    """

    description = "the Python standard library and installed packages"

    def __init__(self, *, packages: Mapping[str, str]) -> None:
        super().__init__()
        if not isinstance(packages, Mapping) or not packages:
            raise UsageError(
                f"task.source.packages must map packages to versions, such as {{sympy: 1.14.0}}, but is {packages!r}; "
                "task/source=python reads the standard library alone"
            )
        found = {str(name): _distribution(str(name)) for name in packages}
        self.packages = {name: str(packages[name]) for name in found}
        wrong = [name for name, each in found.items() if each is None or each.version != self.packages[name]]
        if wrong:
            had = [f"{name} is {each.version if (each := found[name]) else 'not installed'}" for name in wrong]
            pinned = " ".join(f"{name}=={self.packages[name]}" for name in wrong)
            raise UsageError(
                f"the packages of task.source.packages must have its versions, but {', '.join(had)}; pip install "
                f"{pinned}, or state others there: the text is then another one"
            )
        self._of_packages = tuple(file for each in found.values() if each for file in _files_of(each))

    def documents(self, columns: Sequence[str] = ()) -> Iterator[Document]:
        if columns:
            return super().documents(columns)  # which refuses them
        return (TextFile(path, key=name) for name, path in self._different)

    def stamp(self) -> Stamp:
        facts, changed = stamp_of_files(path for _, path in (*self.files, *self._of_packages))
        return Stamp([facts, self.packages], changed)

    @cached_property
    def _different(self) -> tuple[tuple[str, Path], ...]:
        """The files without those whose content an earlier one has."""
        found: dict[bytes, tuple[str, Path]] = {}
        for name, path in (*self.files, *self._of_packages):
            found.setdefault(hashlib.sha256(path.read_bytes()).digest(), (name, path))
        return tuple(found.values())


def _distribution(name: str) -> Distribution | None:
    try:
        return distribution(name)
    except (PackageNotFoundError, ValueError):
        return None


def _files_of(package: Distribution) -> list[tuple[str, Path]]:
    """The Python files of a package by their names in it, in order, without tests. UsageError: it is not pure."""
    name = package.metadata["Name"]
    tags = [
        line.partition(":")[2].strip() for line in (package.read_text("WHEEL") or "").splitlines() if "Tag:" in line
    ]
    if not tags or not set(tags) <= {*_ANYWHERE}:
        raise UsageError(
            f"a package must be pure Python (py3-none-any), so that it is the same text everywhere, but the wheel of "
            f"{name} is {', '.join(tags) or 'not known'}; leave it out of task.source.packages"
        )
    found = []
    for file in package.files or ():
        place = PurePosixPath(file.as_posix())
        if place.suffix == ".py" and ".." not in place.parts and not _is_test(place):
            found.append((str(place), Path(str(package.locate_file(file)))))
    return sorted(found)


def _is_test(file: PurePosixPath) -> bool:
    return not NOT_SOURCE.isdisjoint(file.parts) or file.name.startswith("test_") or file.name == "conftest.py"
