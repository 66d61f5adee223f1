"""Series of numbers from CSV files: the user's, and three public ones that ship with swapformer."""

from __future__ import annotations

import csv
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from swapformer.errors import UsageError, suggest

SHIPPED = "statsmodels:"
"""What a path begins with that names a shipped series, such as statsmodels:sunspots: it is that package's data set."""

_MISSING = {"", "na", "nan", "null", "none"}


def read_series(path: str, columns: Sequence[str] | None, across: bool) -> NDArray[np.float64]:
    """The named columns [n,C] of a CSV file with a header in the order of its rows, NaN where a number is missing.

    `columns`: None are all. `across`: the columns of a row follow each other in time: [n·columns,1].
    UsageError: no such file or column, or a cell that is no number, with its line.
    """
    source = _shipped(path.removeprefix(SHIPPED)) if path.startswith(SHIPPED) else Path(path).expanduser()
    try:
        reader = csv.reader(source.read_text(encoding="utf-8-sig").splitlines(), strict=True)
        header = [name.strip() for name in next(reader, [])]
        chosen = _chosen(path, header, columns)
        rows = [_numbers(path, reader.line_num, header, row, chosen) for row in reader if row]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise UsageError(f"task.path must be a readable CSV file in UTF-8, but {path!r} is not: {error}") from None
    values = np.array(rows, dtype=np.float64).reshape(len(rows), len(chosen))
    return values.reshape(-1, 1) if across else values


def _shipped(name: str) -> Path:
    folder = Path(__file__).with_name("data")
    known = sorted(path.stem for path in folder.glob("*.csv"))
    if name not in known:
        raise UsageError(
            f"{SHIPPED} must be followed by one of {', '.join(known)}, but task.path is {SHIPPED + name!r}"
            f"{suggest(name, known)}"
        )
    return folder / f"{name}.csv"


def _chosen(path: str, header: Sequence[str], columns: Sequence[str] | None) -> list[int]:
    names = header if columns is None else [str(name) for name in columns]
    if missing := [name for name in names if name not in header]:
        raise UsageError(
            f"task.columns must be columns of {path!r}, which has {', '.join(header) or 'none'}, but {missing[0]!r} "
            f"is not{suggest(missing[0], header)}"
        )
    if twice := [name for name in names if header.count(name) > 1 or names.count(name) > 1]:
        raise UsageError(
            f"each column of {path!r} must be named once, but {twice[0]!r} stands twice in "
            f"{'its header' if header.count(twice[0]) > 1 else 'task.columns'}; give each its own name"
        )
    if not names:
        raise UsageError(f"task.columns must name at least one column of {path!r}, which has {', '.join(header)}")
    return [header.index(name) for name in names]


def _numbers(path: str, line: int, header: Sequence[str], row: Sequence[str], chosen: Sequence[int]) -> list[float]:
    if len(row) != len(header):
        raise UsageError(f"{path}:{line}: a line must have {len(header)} cells like the header, but has {len(row)}")
    return [_number(path, line, header[index], row[index].strip()) for index in chosen]


def _number(path: str, line: int, column: str, cell: str) -> float:
    if cell.lower() in _MISSING:
        return math.nan
    try:
        value = float(cell)
    except ValueError:
        value = math.inf
    if not math.isfinite(value):
        raise UsageError(
            f"{path}:{line}: column {column!r} must hold numbers, but has {cell!r}; correct it, leave the cell empty "
            "where a value is missing, or name the columns to forecast in task.columns"
        )
    return value
