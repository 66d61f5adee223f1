"""Axes whose ticks are plain numbers."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator, ScalarFormatter


def logarithmic(axes: Axes, which: Literal["x", "y"], ticks: int = 6) -> None:
    """Make an axis logarithmic, with few ticks: at 1, 2 and 5 times powers of ten, or only at the powers."""
    (axes.set_xscale if which == "x" else axes.set_yscale)("log")
    low, high = axes.get_xlim() if which == "x" else axes.get_ylim()
    axis = axes.xaxis if which == "x" else axes.yaxis
    wide = math.log10(max(high, 1e-300) / max(low, 1e-300)) > 3
    axis.set_major_locator(LogLocator(10, (1.0,) if wide else (1.0, 2.0, 5.0), numticks=ticks))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: short(value)))


class PlainFormatter(ScalarFormatter):
    """Names ticks as matplotlib does, but from a million on as `short` does, without a factor at the axis' end."""

    def format_ticks(self, values: Iterable[float]) -> list[str]:
        ticks = list(values)
        if max(map(abs, ticks), default=0) < 1e6:
            return [str(name) for name in super().format_ticks(ticks)]
        return [short(value) for value in ticks]


def short(value: float) -> str:
    """A number at a tick: 0.05, 2000, 500k, 20M, 1T."""
    for size, letter in ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if max(size, 1e5) <= value < 1e18:
            return f"{value / size:g}{letter}"
    return f"{value:g}".replace("-", "−")


def finite_positive(values: object) -> np.ndarray:
    """The numbers that a logarithmic axis can show."""
    found = np.asarray(values, dtype=float)
    return np.isfinite(found) & (found > 0)
