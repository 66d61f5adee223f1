"""Which files a text is made of."""

from __future__ import annotations

import glob
import os
import sysconfig
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from swapformer.errors import UsageError

_NOT_SOURCE = {"test", "tests", "idle_test", "site-packages", "dist-packages", "lib2to3", "__pycache__"}


@dataclass(frozen=True)
class Source:
    """The files of a corpus in their order, with the names that they go by; `description` for messages.

    `whole_files`: each file belongs to one split, by a hash of its name. Otherwise the files are joined as `cat` would,
    and the text is cut in three.
    """

    files: tuple[tuple[str, Path], ...]
    whole_files: bool
    description: str


def standard_library() -> Source:
    """The Python standard library's source: every .py file but tests, what pip installed and what the build wrote."""
    root = Path(sysconfig.get_path("stdlib"))
    files = []
    for folder, subfolders, names in os.walk(root):
        subfolders[:] = [name for name in subfolders if name not in _NOT_SOURCE and not name.startswith("config-")]
        for name in names:
            if name.endswith(".py") and not name.startswith("_sysconfigdata"):
                path = Path(folder, name)
                files.append((path.relative_to(root).as_posix(), path))
    if not files:
        raise UsageError(f"the Python standard library's source is not in {root}; set task.path to a text of your own")
    return Source(tuple(sorted(files)), whole_files=True, description="the Python standard library")


def find(path: str) -> Source:
    """The files that the user means: a file, a folder (all in it that is not hidden) or a pattern such as a/**/*.md."""
    try:
        files = sorted((file.as_posix(), file) for file in _find(Path(str(path)).expanduser()) if file.is_file())
    except (OSError, RuntimeError) as error:
        raise UsageError(f"task.path must be readable, but {path!r} is not: {error}") from None
    if not files:
        raise UsageError(f"task.path must lead to at least one file, but {path!r} has none")
    return Source(tuple(files), whole_files=False, description=repr(path))


def _find(path: Path) -> Iterable[Path]:
    if path.is_file():
        return [path]
    if path.is_dir():
        return (file for file in path.rglob("*") if not _hidden(file.relative_to(path)))
    if glob.has_magic(str(path)):
        return map(Path, glob.glob(str(path), recursive=True))
    raise UsageError(
        f"task.path must be a file, a folder or a pattern, but there is nothing at {str(path.absolute())!r}"
    )


def _hidden(path: Path) -> bool:
    return any(part.startswith(".") for part in path.parts)
