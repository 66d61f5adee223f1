"""The history of a trial: `metrics.csv`, one row for each value measured at a step."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from pathlib import Path

from swapformer.results.durable import move, sync

HEADER = ["step", "name", "value"]


class History:
    """Appends rows `step,name,value`, in the order in which they were measured.

    Args:
        path: the file.
        step: keep the rows up to this step: a resumed trial measures the later ones again.
    """

    def __init__(self, path: Path, step: int) -> None:
        self.path = path
        kept = []
        if path.exists():
            with path.open(newline="") as file:
                kept = [row for row in csv.reader(file) if len(row) == 3 and row[0].isdigit() and int(row[0]) <= step]
        draft = path.with_suffix(".tmp")
        with draft.open("w", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows([HEADER, *kept])
        move(draft, path)

    def write(self, step: int, values: Mapping[str, float]) -> None:
        """Append the values measured after `step` optimiser steps; a float is written so that it reads back equal."""
        with self.path.open("a", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows([step, name, repr(value)] for name, value in values.items())

    def sync(self) -> None:
        """Have the disk hold all rows so far."""
        sync(self.path)
