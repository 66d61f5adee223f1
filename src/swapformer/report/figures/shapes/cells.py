"""Heat maps: cells in the colours of one scale, as a picture within the SVG, with a color bar and names."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from swapformer.report.figures import svg
from swapformer.report.figures.style import INK
from swapformer.report.number_format import compact
from swapformer.report.statistics.estimates import FloatArray

COLORS = "cividis"
"""Reads without colour vision, and shares no colour with the arms."""
WIDE = 10.0
"""Inches of a figure that takes the whole width of the page."""
LONGEST = 24
"""Characters of a name beside a heat map."""
TEXT = 0.125
"""Inches that a line of small text needs."""
_DARK, _LIGHT = "#000000", "#ffffff"
"""Text on cells, whose colours are the same on light and dark pages."""


class Scale:
    """The colours of numbers from `low` to `high`; without them, of the finite numbers that are drawn."""

    def __init__(self, values: Sequence[FloatArray], low: float | None = None, high: float | None = None) -> None:
        there = np.concatenate([np.ravel(each) for each in values] or [np.zeros(0)])
        there = there[np.isfinite(there)]
        self.low = float(there.min()) if low is None and len(there) else low or 0.0
        self.high = float(there.max()) if high is None and len(there) else 1.0 if high is None else high
        self.below, self.above = bool((there < self.low).any()), bool((there > self.high).any())

    def shares(self, values: FloatArray) -> FloatArray:
        """The places of numbers on the scale, in [0, 1]; nan stays nan."""
        width = self.high - self.low
        return np.clip((values - self.low) / width, 0, 1) if width > 0 else np.where(np.isfinite(values), 0.5, np.nan)

    def colors(self, values: FloatArray) -> np.ndarray:
        """The colours of numbers [rows, columns, 4], bytes; nan is transparent."""
        found = colormaps[COLORS](np.nan_to_num(self.shares(values)), bytes=True)
        found[~np.isfinite(values)] = 0
        return np.asarray(found)

    def text_color(self, value: float) -> str:
        """A colour that reads on a cell."""
        return _DARK if self.shares(np.array(value)) > 0.55 else _LIGHT


def reduced(values: FloatArray, most: int) -> tuple[FloatArray, int, int]:
    """The numbers with neighbours averaged, at most `most` a side, and how many rows and columns are one."""
    down, across = (math.ceil(size / most) for size in values.shape)
    if down == across == 1:
        return values, 1, 1
    rows, columns = (math.ceil(size / factor) for size, factor in zip(values.shape, (down, across), strict=True))
    padded = np.full((rows * down, columns * across), np.nan)
    padded[: values.shape[0], : values.shape[1]] = values
    blocks = padded.reshape(rows, down, columns, across)
    count = np.isfinite(blocks).sum((1, 3))
    return np.where(count > 0, np.nansum(blocks, (1, 3)) / np.maximum(count, 1), np.nan), down, across


def within_size(draw: Callable[[int], tuple[Figure, str]], most: int) -> tuple[str, int]:
    """The SVG of maps with at most so many rows and columns that is small enough, and how many they have."""
    while True:
        _, text = draw(most)
        if len(text.encode()) <= svg.LARGEST or most <= 8:
            return text, most
        most //= 2


def panel(figure: Figure, left: float, above: float, width: float, height: float) -> Axes:
    """An axes without frame, so many inches from the left and from above."""
    across, whole = figure.get_size_inches()
    box = (left / across, 1 - (above + height) / whole, width / across, height / whole)
    axes = figure.add_axes(box, facecolor="none")
    for spine in axes.spines.values():
        spine.set_visible(False)
    axes.tick_params(length=0, labelsize=svg.FONT - 2, colors=INK, pad=2)
    axes.set(xticks=[], yticks=[])
    return axes


def paint(axes: Axes, values: FloatArray, scale: Scale, most: int) -> None:
    """Fill an axes with cells, at most `most` a side; its coordinates are rows and columns, counted from 0."""
    shown, down, across = reduced(values, most)
    rows, columns = shown.shape
    axes.imshow(
        scale.colors(shown), interpolation="none", aspect="auto", origin="upper",
        extent=(-0.5, columns * across - 0.5, rows * down - 0.5, -0.5),
    )  # fmt: skip
    axes.set(xlim=(-0.5, values.shape[1] - 0.5), ylim=(values.shape[0] - 0.5, -0.5))


def name_ticks(axes: Axes, names: Sequence[str], inches: float, which: str, longest: int = LONGEST) -> None:
    """Names along an axis of a heat map, upright below it; those left out that would lie over one another."""
    every = max(1, math.ceil(len(names) * TEXT / max(inches, 1e-6) - 1e-9))
    places = list(range(0, len(names), every))
    shown = [short(names[place], longest) for place in places]
    if which == "y":
        axes.set_yticks(places, shown)
    else:
        fits = all(len(name) * 0.075 < every * inches / len(names) for name in shown)
        axes.set_xticks(places, shown, rotation=0 if fits else 90)


def short(name: str, longest: int) -> str:
    """A name in one line, cut, with blanks at its ends and line breaks made visible."""
    name = name.replace("\n", "⏎").replace("\t", "⇥")
    if name.strip() != name or not name:
        name = "␣" if not name.strip() else name.replace(" ", "␣")
    return name if len(name) <= longest else f"{name[: longest - 1]}…"


def text_width(names: Sequence[str], longest: int = LONGEST) -> float:
    """Inches that the longest of some names takes in small text."""
    return 0.062 * max((len(short(name, longest)) for name in names), default=0)


def color_bar(figure: Figure, scale: Scale, left: float, unit: str) -> None:
    """The scale at the foot of a figure: a bar with the numbers at its ends and the unit."""
    height = float(figure.get_figheight())
    axes = panel(figure, left + 0.45, height - 0.2, 1.4, 0.1)
    paint(axes, np.linspace(0, 1, 64)[None], Scale([], 0, 1), 64)
    low, high = compact(scale.low), compact(scale.high)
    low, high = f"≤ {low}" if scale.below else low, f"≥ {high}" if scale.above else high
    across, y = float(figure.get_figwidth()), 0.15 / height
    figure.text((left + 0.4) / across, y, low, ha="right", va="center", fontsize=svg.FONT - 2, color=INK)
    said = f"{high} {unit}".strip()
    figure.text((left + 1.9) / across, y, said, ha="left", va="center", fontsize=svg.FONT - 2, color=INK)
