"""What a figure's marks say to a reader who points at them: the numbers that were plotted, at their places."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from matplotlib.axes import Axes

from swapformer.report import number_format
from swapformer.report.figures.style import Style

_POINTS = 72  # of an SVG to the inch


@dataclass(frozen=True)
class _Marks:
    """An arm's marks in one panel: places in its units, what stands there in words, and the names of the places."""

    arm: str
    key: str
    axes: Axes
    x: tuple[float, ...]
    y: tuple[float, ...]
    text: tuple[str, ...]
    at: tuple[str, ...]


@dataclass
class Hover:
    """Collects what is drawn, from the very numbers that are drawn.

    `by`: a reader is told all arms at the nearest place of the horizontal axis (`x`), or the nearest mark (`point`).
    """

    name: str
    by: Literal["x", "point"] = "x"
    _marks: list[_Marks] = field(default_factory=list)

    def add(
        self, axes: Axes, arm: str, look: Style, x: Iterable[float], y: Iterable[float], text: Iterable[str],
        at: Sequence[str] = (),
    ) -> None:  # fmt: skip
        """Marks of an arm; those without a finite place are not there. `at` names the places, where numbers do not."""
        rows = list(zip(map(float, x), map(float, y), text, strict=True))
        names = at or [""] * len(rows)
        kept = [(*row, name) for row, name in zip(rows, names, strict=True) if all(map(math.isfinite, row[:2]))]
        if kept:
            xs, ys, texts, ats = zip(*kept, strict=True)
            self._marks.append(_Marks(arm, look.key, axes, xs, ys, texts, ats if any(ats) else ()))

    def plain(self) -> dict[str, Any] | None:
        """For the page, when all is drawn: panels with their frames and scales, marks; None where there is nothing."""
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
                    "x": [_short(x) for x in marks.x], "y": [_short(y) for y in marks.y], "text": list(marks.text),
                    **({"at": list(marks.at)} if marks.at else {}),
                }
                for marks in self._marks
            ],
        }  # fmt: skip


def interval_text(value: float, lower: float, upper: float, signed: bool = False) -> str:
    """`1.234 [1.221, 1.247]`; without the brackets where a single value has no interval."""
    ends = (lower, upper) if math.isfinite(lower) or math.isfinite(upper) else (-math.inf, math.inf)
    if not any(map(math.isfinite, ends)):
        return number_format.number(value, 4, signed)
    places = number_format.places_for(value, *ends)
    return f"{number_format.number(value, places, signed)} {number_format.interval(*ends, places, signed)}"


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
