"""Follows a trial's `metrics.csv` while it is being written."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path


class History:
    """Gives each row once, whole rows only, grouped by step.

    A resumed trial replaces the file by one that ends at its checkpoint, then measures the same values again: rows that
    were given before are passed over.
    """

    def __init__(self, path: Path, first_step: int = 0) -> None:
        self._path, self._step = path, first_step
        self._names: set[str] = set()  # given of the newest step
        self._file, self._offset = 0, 0

    def rows(self) -> Iterator[tuple[int, dict[str, float]]]:
        """(step, name → value) of what was written since the last call; one step may come in several pieces."""
        step, values = self._step, dict[str, float]()
        for line in self._lines():
            row = line.decode("utf-8", "replace").strip().split(",")
            if len(row) != 3 or not row[0].isdigit() or (value := _number(row[2])) is None:
                continue
            number = int(row[0])
            if number < self._step or (number == self._step and row[1] in self._names):
                continue
            if number > self._step:
                if values:
                    yield step, values
                values, self._names, self._step = {}, set(), number
            step = number
            values[row[1]] = value
            self._names.add(row[1])
        if values:
            yield step, values

    def _lines(self) -> list[bytes]:
        """Whole lines that are new; all of them when the file is another one."""
        try:
            with self._path.open("rb") as file:
                found = os.fstat(file.fileno())
                if found.st_ino != self._file or found.st_size < self._offset:
                    self._file, self._offset = found.st_ino, 0
                file.seek(self._offset)
                content = file.read()
        except OSError:
            return []
        whole = content[: content.rfind(b"\n") + 1]
        self._offset += len(whole)
        return whole.split(b"\n")


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
