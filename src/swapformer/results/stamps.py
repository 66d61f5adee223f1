"""Whether files are as they were, by their sizes and times: what was made of them need not be made again."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from swapformer.paths import LOADED, conf_dir, package_dirs

SETTLED = 2 * 10**9
"""Nanoseconds after a change of a file before its stamp is trusted: a second change might leave the same times."""
_SKIPPED = ("__pycache__", "site-packages", "dist-packages")


@dataclass
class Stamps:
    """Facts about files, whose digest changes when a file does, comes or goes; their content is not read.

    `changed`: nanoseconds since 1970 of the latest change of any. `edited`: of the latest change of the program.
    """

    facts: list[Any] = field(default_factory=list)
    changed: int = 0
    edited: int = 0

    def add(self, *facts: Any) -> Stamps:
        """Plain data, such as settings."""
        self.facts += facts
        return self

    def file(self, path: Path) -> Stamps:
        """A file or a folder as such: its size and times, or that there is none."""
        try:
            found = path.stat()
        except OSError:
            return self.add([str(path)])
        self.changed = max(self.changed, found.st_mtime_ns, found.st_ctime_ns)
        return self.add([str(path), found.st_size, found.st_mtime_ns, found.st_ctime_ns])

    def files(self, paths: Iterable[Path]) -> Stamps:
        """Several of them, in their order."""
        for path in paths:
            self.file(path)
        return self

    def tree(self, top: Path) -> Stamps:
        """All files below a folder that are not hidden, but for what Python compiled or pip installed; or a file."""
        return self.files(sorted(_below(top))) if top.is_dir() else self.file(top)

    @property
    def digest(self) -> str:
        """SHA-256 of the facts, in hex."""
        return hashlib.sha256(json.dumps(self.facts).encode()).hexdigest()

    @property
    def trusted(self) -> bool:
        """Whether the digest may be kept: no file changed just now, and the program that runs is that on the disk."""
        return time.time_ns() - self.changed >= SETTLED and LOADED - self.edited >= SETTLED


def program() -> Stamps:
    """What decides how swapformer answers: its source and options, the packages beside it, Python and the machine."""
    found = Stamps()
    for folder in (*package_dirs(), conf_dir()):
        found.tree(folder)
    for entry in map(Path, sys.path):
        if entry.name in ("site-packages", "dist-packages") and entry.is_dir():
            found.files(sorted(entry.glob("*.dist-info")))
    found.edited, found.changed = found.changed, 0
    return found.add(sys.version, platform.node(), os.cpu_count())


def _below(top: Path) -> Iterator[Path]:
    for name, folders, files in os.walk(top):
        folders[:] = [each for each in folders if not each.startswith(".") and each not in _SKIPPED]
        yield from (Path(name, each) for each in files if not each.startswith("."))
