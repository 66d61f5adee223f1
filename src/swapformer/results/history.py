"""The history of a trial, `metrics.csv`: one row `step,name,value` for each value that was measured at a step.

A row counts once its line is whole: without its newline, a number may have lost digits.
"""

from __future__ import annotations

import csv
import os
from collections.abc import Iterator, Mapping, Sequence
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from swapformer.errors import UsageError
from swapformer.numerals import read_number
from swapformer.results.files import CorruptFile, move, read_file, sync

if TYPE_CHECKING:
    import pandas as pd

HEADER = "step,name,value\n"
TRAINING_LOSS = "train/loss"
"""The mean training loss since the row before."""
TOKENS, SECONDS = "train/tokens", "train/seconds"
"""Axes for curves, at every step that has rows: tokens trained on until then, and seconds of training."""
UTILISATION = "train/mfu"
"""Model FLOPs utilisation: the model's operations over those that the devices could do at their peak."""
COLUMNS = ["step", "metric", "value"]
_DIGITS = 18
"""The most digits of a step: more do not fit into 64 bits."""
_TAIL = 4096
"""Bytes at the end of a history in which the newest row is looked for."""


class HistoryRow(NamedTuple):
    """One value, measured after `step` optimiser steps."""

    step: int
    name: str
    value: float


def history_path(folder: Path) -> Path:
    """The history of the trial in `folder`."""
    return folder / "metrics.csv"


def parse_row(line: bytes) -> HistoryRow | None:
    """The row that a line holds; None for the header and for a damaged line."""
    try:
        (step, name, value) = next(csv.reader([line.decode("utf-8", "replace")]))
        return HistoryRow(int(step), name, read_number(value)) if step.isdecimal() and len(step) <= _DIGITS else None
    except (ValueError, StopIteration, csv.Error):
        return None


def _whole_lines(content: bytes) -> list[bytes]:
    """The lines that end with a newline."""
    return content.split(b"\n")[:-1]


class HistoryWriter:
    """Appends rows to the history of the trial in `folder`, in the order in which they were measured.

    Rows up to `step` stay: a resumed trial measures the later ones again.
    """

    def __init__(self, folder: Path, step: int) -> None:
        self.path = history_path(folder)
        lines = _whole_lines(self.path.read_bytes()) if self.path.exists() else []
        rows = [line for line in lines if (row := parse_row(line)) is not None and row.step <= step]
        draft = self.path.with_suffix(".tmp")
        draft.write_bytes(b"".join([HEADER.encode(), *(line + b"\n" for line in rows)]))
        move(draft, self.path)

    def write(self, step: int, values: Mapping[str, float]) -> None:
        """Append the values measured after `step` optimiser steps; a float is written so that it reads back equal."""
        with self.path.open("a", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows([step, name, repr(value)] for name, value in values.items())

    def sync(self) -> None:
        """Make the disk hold all rows so far."""
        sync(self.path)


class HistoryTail:
    """Follows the history of the trial in `folder` while it is being written, and gives each row once.

    A resumed trial replaces the file by one that ends at its checkpoint, then measures the same values again: rows that
    were given before are passed over.
    """

    def __init__(self, folder: Path, first_step: int = 0) -> None:
        self._path, self._step = history_path(folder), first_step
        self._names: set[str] = set()  # given of the newest step
        self._file, self._offset = 0, 0

    def rows(self) -> Iterator[tuple[int, dict[str, float]]]:
        """(step, name → value) of what was written since the last call; one step may come in several pieces."""
        step, values = self._step, dict[str, float]()
        for row in filter(None, map(parse_row, self._lines())):
            if row.step < self._step or (row.step == self._step and row.name in self._names):
                continue
            if row.step > self._step:
                if values:
                    yield step, values
                values, self._names, self._step = {}, set(), row.step
            step = row.step
            values[row.name] = row.value
            self._names.add(row.name)
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
        self._offset += content.rfind(b"\n") + 1
        return _whole_lines(content)


def newest_step(folder: Path) -> int:
    """The step of the newest row of the trial in `folder`; 0 if missing."""
    return next((row.step for row in _newest_rows(folder)), 0)


def newest_value(folder: Path, metric: str) -> float | None:
    """The newest value of a metric of the trial in `folder`; None where none is among its last rows."""
    return next((row.value for row in _newest_rows(folder) if row.name == metric), None)


def _newest_rows(folder: Path) -> Iterator[HistoryRow]:
    """The last whole rows, the newest first."""
    try:
        with history_path(folder).open("rb") as file:
            offset = max(os.fstat(file.fileno()).st_size - _TAIL, 0)
            file.seek(offset)
            lines = _whole_lines(file.read())
    except OSError:
        return iter(())
    rows = map(parse_row, reversed(lines[1:] if offset else lines))  # the first may have lost its beginning
    return filter(None, rows)


def read_history(folder: Path, metrics: Sequence[str] | None, problems: list[str]) -> pd.DataFrame:
    """The history of `metrics`: columns `step`, `metric`, `value`; empty where the trial in `folder` left none.

    None means all metrics. A trial that was resumed may have measured a step twice: the later row counts.
    """
    import pandas as pd  # late: a trial, which writes its history, has no need of it

    path = history_path(folder)
    empty = pd.DataFrame({"step": pd.Series(dtype="int64"), "metric": pd.Series(dtype=str), "value": []})
    try:
        content = read_file(path)
    except FileNotFoundError:
        return empty
    except (CorruptFile, UsageError) as error:
        problems.append(f"{path}: {error}")
        return empty
    whole = content[: content.rfind(b"\n") + 1]
    if len(whole) < len(content):
        problems.append(f"{path}: its last line is cut, and was left out")
    if not whole.strip():
        return empty
    try:
        frame = pd.read_csv(
            BytesIO(whole),
            header=0,
            names=COLUMNS,
            dtype={"step": "int64", "metric": "str", "value": "str"},
            na_filter=False,  # a row without a value is a damaged one
        ).astype({"value": "float64"})  # of a text to the last digit, which read_csv gives only since pandas 3
    except (ValueError, OverflowError):  # a damaged row somewhere: row by row, which is slower
        lines = _whole_lines(whole)
        lines = lines[1:] if lines[0] == HEADER.strip().encode() else lines  # a damaged header is a damaged line too
        rows = [row for row in map(parse_row, lines) if row is not None]
        frame = pd.DataFrame(rows, columns=COLUMNS).astype({"step": "int64"}) if rows else empty
        lost = len(lines) - len(rows)
        problems.append(f"{path}: {lost} damaged line{' was' if lost == 1 else 's were'} left out")
    if metrics is not None:
        frame = frame[frame["metric"].isin(list(metrics))]
    return frame.drop_duplicates(["step", "metric"], keep="last").sort_values(["metric", "step"], kind="stable")
