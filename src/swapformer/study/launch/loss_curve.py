"""The losses of one training over its steps, drawn in characters for a terminal."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

from swapformer.report.number_format import digits_for
from swapformer.results.history import TRAINING_LOSS, HistoryTail

MARKS = {TRAINING_LOSS: ".", "val/loss": "o"}
"""Metric → its character: of ASCII, which every terminal shows one column wide. A later one covers an earlier one."""
WIDEST, NARROWEST, HEIGHT = 80, 40, 8
"""Columns of the whole, at most and at least; lines of the area."""

Points = Sequence[tuple[int, float]]


def loss_curve(folder: Path, columns: int) -> list[str]:
    """Lines that show the training and validation loss of the trial in `folder`, at most `columns` wide.

    A column holds the mean of the values that fall into it; values that are not finite are left out. No lines where
    fewer than two steps have a loss, or the terminal is too narrow to show them.
    """
    curves: dict[str, list[tuple[int, float]]] = {name: [] for name in MARKS}
    for step, values in HistoryTail(folder).rows():
        for name in MARKS.keys() & values.keys():
            if math.isfinite(values[name]):
                curves[name].append((step, values[name]))
    return draw({name: points for name, points in curves.items() if points}, columns)


def draw(curves: dict[str, Points], columns: int) -> list[str]:
    """The lines of `loss_curve` for metric → its points (step, value)."""
    steps = [step for points in curves.values() for step, _ in points]
    losses = [value for points in curves.values() for _, value in points]
    first, last = min(steps, default=0), max(steps, default=0)
    if first == last or columns < NARROWEST:
        return []
    low, high = min(losses), max(losses)
    digits = digits_for(low, high)
    edges = f"{high:.{digits}g}", f"{low:.{digits}g}"
    margin = max(map(len, edges))
    width = min(columns, WIDEST) - margin - 2
    area = [[" "] * width for _ in range(HEIGHT)]
    for name, points in curves.items():
        within: dict[int, list[float]] = {}
        for step, value in points:
            within.setdefault((step - first) * (width - 1) // (last - first), []).append(value)
        for column, values in within.items():
            share = (high - fmean(values)) / (high - low) if high > low else 0.5
            area[round(share * (HEIGHT - 1))][column] = MARKS[name]
    named = [edges[0], *[""] * (HEIGHT - 2), edges[1]]
    lines = [f"{text:>{margin}} |{''.join(row)}".rstrip() for text, row in zip(named, area, strict=True)]
    said = "   ".join(f"{MARKS[name]} {name}" for name in curves)
    ends = f"{'':{margin}} |{f'step {first}':<{width - len(str(last))}}{last}"
    return [*lines, ends, f"{'':{margin}}  {said}"]
