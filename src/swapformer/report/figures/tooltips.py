"""Tooltips of figures: the numbers that were plotted, for a reader who points at a mark."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from matplotlib.axes import Axes

from swapformer.report.figures.style import Style
from swapformer.report.results_csv import csv_text

_POINTS = 72  # of an SVG to the inch
_MOST = 400  # marks of a line that a page tells; all are drawn


@dataclass(frozen=True)
class _Marks:
    """An arm's marks in one panel: coordinates in its units, what each mark says, and names instead of x values."""

    arm: str
    key: str
    axes: Axes
    x: tuple[float, ...]
    y: tuple[float, ...]
    text: tuple[str, ...]
    at: tuple[str, ...]
    ends: tuple[tuple[float, float], ...]
    swatch: bool

    def told(self) -> range | list[int]:
        """The marks that get a tooltip: of very many, evenly chosen ones, which are more than a screen can part."""
        count = len(self.x)
        return range(count) if count <= _MOST else [round(i * (count - 1) / (_MOST - 1)) for i in range(_MOST)]


@dataclass
class Tooltips:
    """Collects the marks of a figure, from the very numbers that are drawn.

    `by`: a reader is told all arms at the nearest x value (`x`), or the nearest mark (`point`).
    """

    name: str
    by: Literal["x", "point"] = "x"
    _marks: list[_Marks] = field(default_factory=list)

    def add(
        self, axes: Axes, arm: str, style: Style, x: Iterable[float], y: Iterable[float], text: Iterable[str],
        at: Sequence[str] = (), ends: Sequence[tuple[float, float]] = (), swatch: bool = True,
    ) -> None:  # fmt: skip
        """Add an arm's marks that have finite coordinates.

        `at`: names to show instead of x values; `ends`: of each mark's interval, for the table of the data.
        `swatch`: whether the marks are drawn in the arm's style, which is then told beside its name.
        """
        rows = list(zip(map(float, x), map(float, y), text, strict=True))
        names, limits = at or [""] * len(rows), ends or [(math.nan, math.nan)] * len(rows)
        kept = [
            (*row, name, limit)
            for row, name, limit in zip(rows, names, limits, strict=True)
            if all(map(math.isfinite, row[:2]))
        ]
        if kept:
            xs, ys, texts, ats, both = zip(*kept, strict=True)
            self._marks.append(_Marks(arm, style.key, axes, xs, ys, texts, ats if any(ats) else (), both, swatch))

    def to_csv(self) -> str:
        """The plotted data as a table: arm, coordinates, names, and the ends of intervals where they were given."""
        header = ("arm", "at", "x", "y", "low", "high", "says")
        rows = (
            (marks.arm, name, x, y, *ends, text)
            for marks in self._marks
            for x, y, text, name, ends in zip(
                marks.x, marks.y, marks.text, marks.at or [""] * len(marks.x), marks.ends, strict=True
            )
        )
        return csv_text(header, rows) if self._marks else ""

    def to_json(self) -> dict[str, Any] | None:
        """Plain data for the page, when all is drawn: panels with frames and scales, and marks; None without marks."""
        if not self._marks:
            return None
        panels = list(dict.fromkeys(marks.axes for marks in self._marks))
        return {
            "by": self.by,
            "name": self.name,
            "panels": [_panel(axes) for axes in panels],
            "marks": [
                {
                    "arm": marks.arm, "key": marks.key, "panel": panels.index(marks.axes),
                    "x": [_short(marks.x[i]) for i in marks.told()], "y": [_short(marks.y[i]) for i in marks.told()],
                    "text": [marks.text[i] for i in marks.told()],
                    **({"at": [marks.at[i] for i in marks.told()]} if marks.at else {}),
                    **({} if marks.swatch else {"bare": True}),
                }
                for marks in self._marks
            ],
        }  # fmt: skip


def _panel(axes: Axes) -> dict[str, Any]:
    """Its frame in the SVG's units (left, top, right, bottom), and its scales."""
    figure = axes.get_figure()
    assert figure is not None
    width, height = figure.get_size_inches() * _POINTS  # type: ignore[union-attr]
    box = axes.get_position()
    frame = (box.x0 * width, (1 - box.y1) * height, box.x1 * width, (1 - box.y0) * height)
    return {
        "box": [round(edge, 2) for edge in frame],
        "x": [_short(v, 9) for v in axes.get_xlim()],
        "y": [_short(v, 9) for v in axes.get_ylim()],
        "log": [axes.get_xscale() == "log", axes.get_yscale() == "log"],
    }


def _short(value: float, digits: int = 7) -> float:
    return float(f"{value:.{digits}g}")
