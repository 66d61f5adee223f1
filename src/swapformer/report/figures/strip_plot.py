"""Figures with every seed visible: a metric by arm, or along the swept axis."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from swapformer.report import number_format
from swapformer.report.figures import svg
from swapformer.report.figures.figure_data import FigureData, ReportFigure
from swapformer.report.figures.panels import add_legend, draw_bar, draw_mark, draw_published, published_styles
from swapformer.report.figures.style import ALARM, INK, SOFT, Style
from swapformer.report.figures.tooltips import Tooltips
from swapformer.report.statistics.arm_summary import Summary

_ROW = 0.30  # inches per arm in horizontal figures
_NAME = 30  # characters before a name wraps


def axis_plot(data: FigureData, metric: str, axis: dict[str, float]) -> ReportFigure | None:
    """`metric` against the swept value, on a logarithmic axis where the values are a power series."""
    key = data.records.manifest.axis.key if data.records.manifest.axis else ""
    summaries = data.summaries(metric)
    if not any(summary.n for summary in summaries.values()):
        return None
    figure = svg.new_figure(3.1)
    axes = svg.add_panel(figure, 0.68, 0.52, 0.15, 0.2)
    if svg.is_power_series(list(axis.values())):
        axes.set_xscale("log", base=2)
    x = np.array([axis[arm] for arm in data.arms])
    values = np.array([data.evidence.seed_values(arm, metric) for arm in data.arms])
    axes.plot(x, values, color=SOFT, linewidth=0.6, alpha=0.45, zorder=2)  # one line per seed: the pairing, visible
    axes.plot(x, [summaries[arm].mean for arm in data.arms], color=INK, linewidth=1.1, zorder=3)
    tooltips = Tooltips(key, "point")
    for arm, at, row in zip(data.arms, x, values, strict=True):
        style, summary = data.styles[arm], summaries[arm]
        tooltips.add(axes, arm, style, [at], [summary.mean], [summary.full_text], [number_format.compact(at)],
                     [(summary.lower, summary.upper)])  # fmt: skip
        _draw_marks(axes, style, [at] * len(row), row.tolist(), summary, at)
        if data.diverged(arm):
            side = {min(x): "left", max(x): "right"}.get(at, "center")
            axes.annotate(
                f"× {data.diverged(arm)} diverged", (at, 1), xycoords=("data", "axes fraction"), ha=side,
                va="bottom", fontsize=svg.FONT - 1.5, color=ALARM, gid=style.key,
            )  # fmt: skip
    if len(x) <= 12:
        svg.ticks_at(axes, x.tolist(), [number_format.compact(value) for value in x], rotate=len(x) > 9)
    svg.label(axes, key, data.label(metric))
    caption = (
        "Small dots are single seeds, thin lines join the same seed; large marks are means with 95 % t intervals, "
        "joined by a line."
    )
    marks = data.published(metric, axis)
    caption += draw_published(axes, marks, tooltips)
    add_legend(figure, published_styles(marks))
    return ReportFigure.of(f"axis_{svg.slug(metric)}", f"{metric} against {key}", caption, figure, tooltips)


def arm_plot(data: FigureData, metric: str) -> ReportFigure | None:
    """`metric` of every arm in rows: single seeds, mean and 95 % t interval."""
    summaries = data.summaries(metric)
    if not any(summary.n for summary in summaries.values()):
        return None
    axes, figure = row_panel(data.arms, metric)
    tooltips = Tooltips(metric, "point")
    for row, arm in enumerate(data.arms):
        style, summary = data.styles[arm], summaries[arm]
        values = data.evidence.seed_values(arm, metric).tolist()
        tooltips.add(
            axes, arm, style, [summary.mean], [row], [summary.full_text], ends=[(summary.lower, summary.upper)]
        )
        _draw_marks(axes, style, values, jitter(values, row), summary, row, horizontal=True)
        if data.diverged(arm):
            axes.annotate(
                f"× {data.diverged(arm)} diverged", (1, row), xytext=(0, 5), xycoords=("axes fraction", "data"),
                textcoords="offset points", ha="right", va="bottom", fontsize=svg.FONT - 1.5, color=ALARM,
                gid=style.key,
            )  # fmt: skip
    svg.label(axes, data.label(metric))
    axes.xaxis.label.set(x=1, ha="right")
    caption = "Small dots are single seeds; large marks are means with 95 % t intervals."
    rows = {arm: float(row) for row, arm in enumerate(data.arms)}
    known = [each for each in data.records.manifest.published if each.arm is not None]
    marks = [(each.source, each.value, rows[each.arm]) for each in known if each.metric == metric and each.arm in rows]
    caption += draw_published(axes, marks, tooltips, across=True)
    add_legend(figure, published_styles(marks))
    return ReportFigure.of(f"arms_{svg.slug(metric)}", f"{metric} by arm", caption, figure, tooltips)


def row_panel(arms: Sequence[str], metric: str) -> tuple[Axes, Figure]:
    """A panel with one row per arm, first arm on top, names at the left in as many lines as they need."""
    names = [svg.wrap(arm, _NAME) for arm in arms]
    lines = max(name.count("\n") + 1 for name in names)
    longest = max(len(line) for name in names for line in name.split("\n"))
    row = max(_ROW, 0.05 + 0.155 * lines)
    left = 0.2 + 0.078 * longest
    figure = svg.new_figure(row * len(arms) + 0.95)
    axes = svg.add_panel(figure, left, 0.62, 0.2, 0.28)
    axes.set_ylim(len(arms) - 0.5, -0.5)
    axes.set_yticks(range(len(arms)), names)
    axes.grid(False, axis="y")
    axes.tick_params(axis="y", length=0)
    svg.few_ticks(axes, "x", max(4, int((svg.WIDTH - left) / 0.7)))
    return axes, figure


def jitter(values: Sequence[float], row: float) -> list[float]:
    """The vertical positions of a row's seeds, a little apart so that equal values stay visible."""
    return (row + np.linspace(-0.2, 0.2, len(values))).tolist() if len(values) > 1 else [row] * len(values)


def _draw_marks(
    axes: Axes, style: Style, x: Sequence[float], y: Sequence[float], summary: Summary, at: float,
    horizontal: bool = False,
) -> None:  # fmt: skip
    """An arm's single seeds, its mean and its interval."""
    axes.plot(x, y, "o", color=style.color, markersize=3, alpha=0.5, markeredgewidth=0, zorder=3, gid=style.key)
    if not summary.n:
        return
    ends, level = [summary.lower, summary.upper], [at, at]
    draw_bar(axes, *((ends, level) if horizontal else (level, ends)), style, 2, order=4)
    draw_mark(axes, *((summary.mean, at) if horizontal else (at, summary.mean)), style, 7, order=5)
