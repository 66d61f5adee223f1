"""Panels and marks of figures: one panel for few arms or one each for many, lines with bands, intervals and points."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from swapformer.report.figures import svg
from swapformer.report.figures.figure_data import FigureData
from swapformer.report.figures.style import INK, PAPER, SOFT, Style, series_styles
from swapformer.report.figures.tooltips import Tooltips
from swapformer.report.number_format import compact, interval_text
from swapformer.report.statistics.estimates import FloatArray, mean_estimate

MAX_TOGETHER = 6  # arms in one panel; beyond that each arm has its own
FEWEST_BANDED = 3
"""Seeds that a band needs: that of two is 12.7 times as wide as they lie apart, and hides every line."""


def line_panels(
    arms: Sequence[str], styles: Mapping[str, Style], x: str, y: str, together: bool | None = None, foot: float = 0.0,
    others: Mapping[str, Style] | None = None,
) -> tuple[Figure, dict[str, Axes]]:  # fmt: skip
    """One panel with a legend for few arms; for many, one each with shared axes and the arm's name above.

    Args:
        together: whether there is one panel; None by the number of arms.
        foot: inches below the panels for long names of ticks.
        others: what else the legend names.
    """
    others = others or {}
    if not (len(arms) <= MAX_TOGETHER if together is None else together):
        return _small_panels(arms, x, y, foot, others)
    named = {arm: styles[arm] for arm in arms} | dict(others)
    columns, below = svg.legend_shape(list(named))
    figure = svg.new_figure(2.75 + below + foot)
    axes = svg.add_panel(figure, 0.68, 0.52 + below + foot, 0.12, 0.12)
    svg.label(axes, x, y)
    svg.few_ticks(axes, "x", 6)
    svg.legend(figure, named, below, columns)
    return figure, dict.fromkeys(arms, axes)


def _small_panels(
    arms: Sequence[str], x: str, y: str, more: float, others: Mapping[str, Style]
) -> tuple[Figure, dict[str, Axes]]:
    """Three panels a row; each row leaves as much room above it as its longest name needs."""
    names = [arm if "\n" in arm else svg.wrap(arm, 19) for arm in arms]
    rows = [range(start, min(start + 3, len(arms))) for start in range(0, len(arms), 3)]
    heads = [0.14 + 0.145 * max(names[i].count("\n") + 1 for i in row) for row in rows]
    columns, below = svg.legend_shape(list(others)) if others else (1, 0.0)
    plot, foot, left, gutter = 1.3 if others and len(arms) <= 9 else 0.88, 0.56 + more + below, 0.68, 0.14
    cell = (svg.WIDTH - left - 0.08) / 3
    height = foot + sum(heads) + plot * len(rows)
    figure = svg.new_figure(height)
    panels: dict[str, Axes] = {}
    above = 0.0
    for row, head in zip(rows, heads, strict=True):
        above += head
        for column, index in enumerate(row):
            start = left + column * cell
            first = next(iter(panels.values()), None)
            edges = (start, height - above - plot, svg.WIDTH - start - cell + gutter, above)
            panels[arms[index]] = axes = svg.add_panel(figure, *edges, first)
            svg.title(axes, names[index], svg.FONT - 1.5)
            axes.tick_params(labelleft=column == 0, labelbottom=index + 3 >= len(arms), labelsize=svg.FONT - 1.5)
            svg.few_ticks(axes, "x", 3)
            svg.few_ticks(axes, "y", 4)
        above += plot
    if others:
        svg.legend(figure, others, below, columns)
    figure.supxlabel(x, fontsize=svg.FONT, color=INK, y=(0.07 + below) / height, va="bottom")
    figure.supylabel(y, fontsize=svg.FONT, color=INK, x=0.05 / svg.WIDTH, ha="left")
    return figure, panels


def is_separate(panels: Mapping[str, Axes]) -> bool:
    """Whether each arm has a separate panel."""
    return len(set(panels.values())) > 1


def draw_bands(
    panels: Mapping[str, Axes], tables: Mapping[str, pd.DataFrame], data: FigureData, tooltips: Tooltips,
    context: bool = True, every_marker: bool = False,
) -> None:  # fmt: skip
    """Draw every arm in its panel, from its table of x values × seeds: the mean with its 95 % t band.

    An arm of fewer than FEWEST_BANDED seeds has a thin line for each instead (see `band_words`). Where panels are
    separate the baseline stands behind each of them, if `context`; without it the values are differences.
    """
    for arm, axes in panels.items():
        if context and is_separate(panels) and arm != data.baseline and len(tables.get(data.baseline, ())):
            behind, (x, mean) = data.styles[data.baseline], _mean(tables[data.baseline])
            axes.plot(x, mean, color=behind.color, linewidth=0.9, zorder=2, gid=behind.key)
            _add_tooltips(tooltips, axes, data, data.baseline, tables[data.baseline], signed=False)
        if not len(tables[arm]):
            continue
        style, (x, mean) = data.styles[arm], _mean(tables[arm])
        if is_banded(tables[arm]):
            low, high = _band(tables[arm])
            axes.fill_between(x, low, high, color=style.color, alpha=0.18, linewidth=0, zorder=2, gid=style.key)
        else:
            for seed in tables[arm]:
                axes.plot(x, tables[arm][seed], color=style.color, linewidth=0.6, alpha=0.6, zorder=2, gid=style.key)
        draw_line(axes, x, mean, style, 4.5, 1.6, markevery=1 if every_marker else max(len(x) // 6, 1))
        _add_tooltips(tooltips, axes, data, arm, tables[arm], signed=not context)


def is_banded(table: pd.DataFrame) -> bool:
    """Whether an arm has the seeds that a band needs."""
    return table.shape[1] >= FEWEST_BANDED


def band_words(tables: Iterable[pd.DataFrame], what: str = "Mean over finished seeds") -> str:
    """The words of a caption for what `draw_bands` draws."""
    drawn = {is_banded(table) for table in tables if len(table)}
    thin = f"thin lines are the seeds, of which a band needs {FEWEST_BANDED}"
    if drawn == {False}:
        return f"{what}; {thin}"
    return f"{what} with its 95 % t band" + (f"; {thin}" if False in drawn else "")


def _add_tooltips(
    tooltips: Tooltips, axes: Axes, data: FigureData, arm: str, table: pd.DataFrame, signed: bool
) -> None:
    """Mean and band along a line."""
    (x, mean), (low, high) = _mean(table), _band(table)
    texts = [interval_text(*values, signed=signed) for values in zip(mean, low, high, strict=True)]
    tooltips.add(axes, arm, data.styles[arm], x, mean, texts, ends=list(zip(low, high, strict=True)))


def _mean(table: pd.DataFrame) -> tuple[FloatArray, FloatArray]:
    return table.index.to_numpy(dtype=float), np.nanmean(table.to_numpy(dtype=float), axis=1)


def _band(table: pd.DataFrame) -> tuple[FloatArray, FloatArray]:
    rows = table.to_numpy(dtype=float)
    limits = np.array([mean_estimate(row[np.isfinite(row)]).limits for row in rows], dtype=float)
    limits[~np.isfinite(limits).all(axis=1)] = math.nan  # a single seed has no band
    return limits[:, 0], limits[:, 1]


def mark_trained_length(axes: Axes, length: int) -> None:
    """Draw a dashed vertical line at the longest trained length."""
    axes.axvline(length, color=SOFT, linewidth=1, linestyle=(0, (3, 2)), zorder=1)


def draw_line(
    axes: Axes, x: Sequence[float] | FloatArray, y: Sequence[float] | FloatArray, style: Style, size: float,
    width: float, order: int = 3, markevery: int | None = None,
) -> None:  # fmt: skip
    """Draw a line in an arm's colour and dashes, with its markers."""
    axes.plot(
        x, y, color=style.color, linestyle=style.dash, linewidth=width, marker=style.marker, markersize=size,
        markevery=markevery, markeredgewidth=0, zorder=order, gid=style.key,
    )  # fmt: skip


def draw_bar(
    axes: Axes, x: Sequence[float], y: Sequence[float], style: Style, width: float = 1.8, order: int = 3
) -> None:
    """Draw an interval as a bar in an arm's colour; one without finite ends is not drawn."""
    if all(map(math.isfinite, (*x, *y))):
        axes.plot(x, y, color=style.color, linewidth=width, solid_capstyle="butt", zorder=order, gid=style.key)


def draw_mark(
    axes: Axes, x: float, y: float, style: Style, size: float, order: int = 4, edge: float = 0.0, face: str = ""
) -> None:
    """Draw an arm's marker: plain, or with an `edge` so wide around a `face` of another colour."""
    colors = dict[str, Any](color=style.color)
    if edge:
        colors = {"markerfacecolor": face or style.color, "markeredgecolor": style.color}
    axes.plot([x], [y], style.marker, markersize=size, markeredgewidth=edge, zorder=order, gid=style.key, **colors)


def draw_ring(axes: Axes, x: float, y: float, style: Style, size: float, edge: float) -> None:
    """Draw a ring in an arm's colour around one of its marks."""
    axes.plot([x], [y], "o", markersize=size, markerfacecolor="none", markeredgecolor=style.color,
              markeredgewidth=edge, zorder=4, gid=style.key)  # fmt: skip


def published_name(name: str) -> str:
    """The legend of a published number."""
    return f"{name} (published)"


def hollow_styles(names: Sequence[str]) -> dict[str, Style]:
    """The styles of published numbers, by name: hollow marks in ink, which no arm's key hides."""
    styles = series_styles(list(dict.fromkeys(names)), ordered=False)
    return {name: replace(style, color=INK, hollow=True) for name, style in styles.items()}


def published_styles(marks: Sequence[tuple[str, float, float]]) -> dict[str, Style]:
    """The styles of published numbers (source, x, y) by what a legend says of them."""
    styles = hollow_styles([source for source, _, _ in marks])
    return {published_name(source): style for source, style in styles.items()}


def draw_published(
    axes: Axes, marks: Sequence[tuple[str, float, float]], tooltips: Tooltips, across: bool = False
) -> str:
    """Draw published numbers (source, x, y), whose value is x where the figure runs `across`; a caption's words."""
    styles = published_styles(marks)
    for source, x, y in marks:
        name = published_name(source)
        draw_hollow(axes, x, y, styles[name])
        tooltips.add(axes, name, styles[name], [x], [y], [compact(x if across else y)])
    sources = ", ".join(dict.fromkeys(source for source, _, _ in marks))
    return f" Hollow marks are published numbers, not ours: {sources}." if marks else ""


def add_legend(figure: Figure, styles: Mapping[str, Style]) -> None:
    """Make room under the panels of a figure that has no legend, and draw one there."""
    if not styles:
        return
    columns, below = svg.legend_shape(list(styles))
    svg.extend_below(figure, below)
    svg.legend(figure, styles, below, columns)


def draw_hollow(axes: Axes, x: float, y: float, style: Style) -> None:
    """Draw a published number as a hollow mark."""
    axes.plot([x], [y], style.marker, markersize=7, markerfacecolor=PAPER, markeredgecolor=style.color,
              markeredgewidth=1.3, linestyle="none", zorder=6)  # fmt: skip
