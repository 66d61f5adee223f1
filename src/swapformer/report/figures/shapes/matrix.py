"""The drawer of matrices: heat maps with named rows and columns, a panel for each arm and each matrix of a name."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.figure import Figure

from swapformer.report.figures import svg
from swapformer.report.figures.figure_data import FigureData, ReportFigure
from swapformer.report.figures.shapes import cells
from swapformer.report.figures.shapes.found import Found, Mean, array, mean_over_seeds
from swapformer.report.figures.style import INK
from swapformer.report.figures.tooltips import Tooltips
from swapformer.report.number_format import interval_text
from swapformer.report.results_csv import csv_text
from swapformer.results.moments import at_moment, split_moment
from swapformer.results.shapes import Matrix

_MAX_ARMS, _MAX_PARTS, _MAX_TOOLTIPS = 12, 12, 600
_CELL, _WRITTEN = 0.36, 0.31
"""Inches of a cell, and from how many its number is written."""
_MOST = 128
"""Rows and columns that are drawn. A figure that is too large loses the numbers in its cells first, then cells."""
_GAP, _SIDE, _LEAST = 0.14, 2.4, 0.62
_TITLE_LINE = 0.14


@dataclass(frozen=True)
class _Panel:
    arm: str
    part: str
    rows: Sequence[str]
    columns: Sequence[str]
    mean: Mean


def draw_matrices(parts: Mapping[str, Found[Matrix]], data: FigureData) -> ReportFigure | None:
    """Heat maps of the matrices that share a figure: a row of panels for each arm, or all arms side by side."""
    panels = [
        _Panel(arm, part, example.rows, example.columns, mean_over_seeds(array([each.values for each in alike])))
        for part, found in parts.items()
        for arm in found.shapes
        for alike in [list(found.alike(arm, _axes).values())]
        for example in alike[:1]
    ]
    panels = [each for each in panels if each.mean.value.size and np.isfinite(each.mean.value).any()]
    if not panels:
        return None
    first = next(iter(parts.values()))
    arms, names = ([*dict.fromkeys(found)] for found in ((p.arm for p in panels), (p.part for p in panels)))
    shown_arms, shown = arms[:_MAX_ARMS], _evenly(names, _MAX_PARTS)
    drawn = [each for each in panels if each.arm in shown_arms and each.part in shown]
    lows, highs = ([getattr(each.first, end) for each in parts.values()] for end in ("low", "high"))
    low, high = None if None in lows else min(lows), None if None in highs else max(highs)  # where each matrix has it
    scale = cells.Scale([each.mean.value for each in drawn], low, high)
    title, own = _said(parts)
    tooltips = Tooltips("", "point")

    def draw(most: int) -> tuple[Figure, str]:
        nonlocal tooltips
        tooltips = Tooltips("", "point")
        figure = _Sheet(drawn, scale, first.first.unit, tooltips, data, most).figure
        return figure, svg.to_svg(figure, title)

    text, side = cells.within_size(draw, _MOST)
    caption = own + _seeds_said(parts)
    left_out = [
        f"{len(arms) - len(shown_arms)} arms" if len(arms) > len(shown_arms) else "",
        f"{len(names) - len(shown)} of {len(names)} matrices" if len(names) > len(shown) else "",
    ]
    if any(left_out):
        caption += f" Not drawn, but in the CSV: {' and '.join(filter(None, left_out))}."
    if (factor := math.ceil(max(max(each.mean.value.shape) for each in drawn) / side)) > 1:
        caption += f" Each cell is the mean over up to {factor} neighbours a side; the CSV has all."
    slug = svg.slug(f"probe_{first.probe}_{sheet_of(first.name)[0]}")
    rows = (
        (
            each.arm,
            each.part,
            row,
            column,
            *(float(part[i, j]) for part in each.mean.numbers),
            int(each.mean.seeds[i, j]),
        )
        for each in panels
        for i, row in enumerate(each.rows)
        for j, column in enumerate(each.columns)
    )
    table = csv_text(("arm", "matrix", "row", "column", "mean", "low", "high", "seeds"), rows)
    return ReportFigure(slug, title, caption, text, tooltips.to_json(), table)


def _said(parts: Mapping[str, Found[Matrix]]) -> tuple[str, str]:
    """The title of a sheet, and what each of its matrices shows where they say different things."""
    titles, captions = (
        list(dict.fromkeys(each)) for each in zip(*((of.title, of.first.caption) for of in parts.values()), strict=True)
    )
    if len(captions) > 1:
        captions = [f"{part}: {of.first.caption}" for part, of in parts.items()]
    return ", ".join(titles[:3]) + (" …" if len(titles) > 3 else ""), "".join(f"{each} " for each in captions if each)


def _seeds_said(parts: Mapping[str, Found[Matrix]]) -> str:
    """The seeds that the matrices of a sheet are means over, part by part where they are not the same."""
    said: dict[str, list[str]] = {}
    for part, found in parts.items():
        said.setdefault(found.caption(_axes, band="").removeprefix(found.first.caption).lstrip(), []).append(part)
    return " ".join(said) if len(said) == 1 else " ".join(f"{', '.join(of)}: {text}" for text, of in said.items())


def _axes(shape: Matrix) -> object:
    return shape.rows, shape.columns


def sheet_of(name: str) -> tuple[str, str]:
    """The figure that a matrix shares with others of its finding and moment, and what it is called there."""
    plain, moment = split_moment(name)
    sheet, _, part = plain.partition("/")
    return at_moment(sheet, moment), part


def _evenly(names: Sequence[str], most: int) -> list[str]:
    if len(names) <= most:
        return list(names)
    return [names[i] for i in np.unique(np.linspace(0, len(names) - 1, most).round().astype(int))]


class _Sheet:
    """Panels in rows: one for each arm with all its matrices, or as many arms beside one another as there is room."""

    def __init__(
        self, panels: Sequence[_Panel], scale: cells.Scale, unit: str, tooltips: Tooltips, data: FigureData, most: int
    ) -> None:
        self.scale, self.tooltips, self.data, self.most = scale, tooltips, data, most
        parts = list(dict.fromkeys(each.part for each in panels))
        self.several = len(parts) > 1
        rows = max(len(each.rows) for each in panels)
        columns = max(len(each.columns) for each in panels)
        self.side_names = cells.text_width([name for each in panels for name in each.rows]) + 0.1
        self.foot_names = max(cells.text_width([name for each in panels for name in each.columns]), 0.1) + 0.08
        same = len({(each.rows, each.columns) for each in panels}) == 1
        wanted = min(max(columns * _CELL, _LEAST), _SIDE if columns > 12 else math.inf)
        across = len(parts) if self.several else len({each.arm for each in panels})
        beside = self.side_names if not same else 0.0
        needed = self.side_names + across * (wanted + _GAP) + max(across - 1, 0) * beside
        whole = svg.WIDTH if needed <= svg.WIDTH or (across == 1 and columns * _CELL <= svg.WIDTH) else cells.WIDE
        if not self.several:
            across = min(
                across,
                max(1, int((whole - 0.1) // (wanted + _GAP + beside + (self.side_names if same else 0) / across))),
            )
        room = (whole - self.side_names - 0.1 - max(across - 1, 0) * beside) / across - _GAP
        width = min(room, max(wanted, 1.4 * _SIDE if columns > 12 else 0.0))
        if across == 1 and not self.several and columns > 12:
            width = min(room, columns * _CELL)
        cell = width / columns
        height = min(max(rows * cell, 0.3), 6.0) if rows * cell <= 3 * width else min(rows * cells.TEXT, 6.0)
        lines = self._lines(panels, across)
        self.title_width = max(9, int(width / 0.075))
        head = 0.06 + _TITLE_LINE * max(len(self._title(each)) for each in panels)
        heads = [head + (0.2 if self.several and index >= 0 else 0.0) for index in range(len(lines))]
        feet = [self.foot_names if (not same or index == len(lines) - 1) else 0.04 for index in range(len(lines))]
        total = sum(heads) + sum(feet) + len(lines) * (height + 0.08) + 0.36
        self.figure = svg.new_figure(total, whole)
        above = 0.0
        for line, over, under, last in zip(lines, heads, feet, range(len(lines) - 1, -1, -1), strict=True):
            if self.several:
                self._say(line[0].arm, 0.06, above + 0.13, "left", weight="bold")
            above += over
            for column, each in enumerate(line):
                place = parts.index(each.part) if self.several else column
                left = self.side_names + place * (width + _GAP + beside)
                names = (column == 0 or not same, last == 0 or not same)
                self._draw(each, left, above, width, height, *names)
            above += height + under + 0.08
        cells.color_bar(self.figure, scale, self.side_names, unit)

    def _lines(self, panels: Sequence[_Panel], across: int) -> list[list[_Panel]]:
        if self.several:
            return [[each for each in panels if each.arm == arm] for arm in dict.fromkeys(each.arm for each in panels)]
        return [list(panels[start : start + across]) for start in range(0, len(panels), across)]

    def _title(self, each: _Panel) -> list[str]:
        """A panel's title, in lines that fit above it."""
        return svg.wrap(each.part if self.several else each.arm, self.title_width).split("\n")

    def _draw(
        self, each: _Panel, left: float, above: float, width: float, height: float, left_names: bool, below: bool
    ) -> None:
        axes, values = cells.panel(self.figure, left, above, width, height), each.mean.value
        rows, columns = values.shape
        cells.paint(axes, values, self.scale, self.most)
        title = self._title(each)
        for index, line in enumerate(title):
            self._say(line, left, above - 0.07 - _TITLE_LINE * (len(title) - 1 - index), "left")
        if left_names:
            cells.name_ticks(axes, each.rows, height, "y")
        if below:
            cells.name_ticks(axes, each.columns, width, "x")
        written = width / columns >= _WRITTEN and height / rows >= 0.15 and self.most == _MOST
        for (i, j), value in np.ndenumerate(values) if written else ():
            if np.isfinite(value):
                color = self.scale.text_color(value)
                axes.text(j, i, _brief(value), ha="center", va="center", fontsize=svg.FONT - 2.5, color=color)
        if values.size <= _MAX_TOOLTIPS:
            who = f"{each.arm}, {each.part}" if self.several else each.arm
            for i, row in enumerate(each.rows):
                numbers = zip(values[i], each.mean.low[i], each.mean.high[i], strict=True)
                texts = [interval_text(float(mean), float(low), float(high)) for mean, low, high in numbers]
                at = [f"{row}, {column}" for column in each.columns]
                self.tooltips.add(axes, who, self.data.styles[each.arm], range(columns), [i] * columns, texts, at)

    def _say(self, text: str, left: float, above: float, side: str, weight: str = "normal") -> None:
        width, height = self.figure.get_size_inches()
        self.figure.text(
            left / width,
            1 - above / height,
            text,
            ha=side,
            va="center",
            fontsize=svg.FONT - 1,
            color=INK,
            weight=weight,
        )


def _brief(value: float) -> str:
    """A number in at most four or five characters."""
    text = f"{value:.2f}" if abs(value) < 9.995 else f"{value:.1f}" if abs(value) < 99.95 else f"{value:.3g}"
    return text.replace("-0.00", "0.00").replace("-", "−")
