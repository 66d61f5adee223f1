"""The drawer of tables: rows of texts and numbers of every arm, on the page as a table and in a file as its picture."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.lines import Line2D

from swapformer.errors import cut
from swapformer.report.figures import svg
from swapformer.report.figures.figure_data import FigureData, ReportFigure
from swapformer.report.figures.shapes.cells import WIDE
from swapformer.report.figures.shapes.found import Found, Mean, mean_over_seeds
from swapformer.report.figures.style import GRID, INK, SOFT
from swapformer.report.number_format import DASH, compact, interval_text
from swapformer.report.results_csv import csv_text
from swapformer.results.shapes import Table

_MOST, _DRAWN = 500, 60
"""Rows on the page, and in the picture."""
_LONGEST = 28


def draw_table(found: Found[Table], data: FigureData) -> ReportFigure | None:
    """The rows of all arms; numbers are means over seeds with their 95 % t intervals where all seeds have the row."""
    several = len(found.shapes) > 1
    columns = list(
        dict.fromkeys(name for seeds in found.shapes.values() for each in seeds.values() for name in each.columns)
    )
    rows: list[tuple[str, ...]] = []
    numbers: list[tuple[object, ...]] = []
    for arm in found.shapes:
        alike = list(found.alike(arm, _axes).values())
        places = [alike[0].columns.index(name) if name in alike[0].columns else None for name in columns]
        for index in range(len(alike[0].rows)):
            of_all = [[None if at is None else each.rows[index][at] for at in places] for each in alike]
            row, means = of_all[0], [_mean(cells) for cells in zip(*of_all, strict=True)]
            shown = [_text(cell, mean) for cell, mean in zip(row, means, strict=True)]
            rows.append((arm, *shown) if several else tuple(shown))
            numbers.append(
                (arm, *(cell if mean is None else float(mean.value[0]) for cell, mean in zip(row, means, strict=True)))
            )
    if not rows or not columns:
        return None
    header = ("arm", *columns) if several else tuple(columns)
    caption = found.caption(_axes, band="95 % t intervals")
    if len(rows) > _MOST:
        caption += f" The first {_MOST} of {len(rows)} rows; all are in the CSV."
    text = csv_text(("arm", *columns), numbers)
    return ReportFigure(
        found.slug, found.title, caption, _picture(header, rows, found.title), None, text, (header, tuple(rows[:_MOST]))
    )


def _axes(shape: Table) -> object:
    """Rows belong together where their names and texts are the same."""
    return shape.columns, [[cell if isinstance(cell, str) else None for cell in row] for row in shape.rows]


def _mean(cells: Sequence[str | float | None]) -> Mean | None:
    if any(isinstance(cell, str) for cell in cells) or all(cell is None for cell in cells):
        return None
    return mean_over_seeds(np.array(cells, dtype=float)[:, None])


def _text(cell: str | float | None, mean: Mean | None) -> str:
    if mean is None:
        return cell if isinstance(cell, str) else DASH
    value, low, high = (float(each[0]) for each in (mean.value, mean.low, mean.high))
    return interval_text(value, low, high) if np.isfinite(low) else compact(value)


def _picture(header: Sequence[str], rows: Sequence[Sequence[str]], title: str) -> str:
    """The table as text in an SVG; long cells are cut, and rows beyond the first sixty left out."""
    shown = [[cut(cell, _LONGEST) for cell in row] for row in rows[:_DRAWN]]
    head = [cut(name, _LONGEST) for name in header]
    widths = [0.2 + 0.078 * max(len(row[i]) for row in [head, *shown]) for i in range(len(head))]
    while sum(widths) > WIDE and len(widths) > 1:
        widths.pop()  # the page and the CSV have all columns
    across = max(sum(widths) + 0.1, svg.WIDTH)
    rest = len(rows) - len(shown)
    height = 0.22 * (len(shown) + 1 + bool(rest)) + 0.2
    figure = svg.new_figure(height, across)
    starts = np.cumsum([0.1, *widths[:-1]])
    for index, row in enumerate([head, *shown, *([[f"… {rest} more rows"]] if rest else [])]):
        y = 1 - (0.2 + 0.22 * index) / height
        for cell, start in zip(row, starts, strict=False):
            figure.text(start / across, y, cell, va="center", fontsize=svg.FONT - 1, color=SOFT if index == 0 else INK)
        if index < len(shown):
            line = 1 - (0.31 + 0.22 * index) / height
            figure.add_artist(_rule(line, GRID))
    return svg.to_svg(figure, title)


def _rule(y: float, color: str) -> Line2D:
    return Line2D([0.01, 0.99], [y, y], color=color, linewidth=0.8)
