"""Every seed visible: a metric by arm or along the swept axis, and the forest of paired differences."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from swapformer.report import number_format
from swapformer.report.figures import svg
from swapformer.report.figures.figure_data import Drawn, Scene
from swapformer.report.figures.style import ALARM, INK, SOFT, Style
from swapformer.report.figures.tooltips import Hover
from swapformer.report.statistics.arm_summary import Summary

_ROW = 0.30  # inches per arm in horizontal figures
_NAME = 30  # characters before a name wraps


def along_axis(scene: Scene, metric: str, places: dict[str, float]) -> Drawn | None:
    """`metric` against the swept value, on a logarithmic axis where the values are a power series."""
    key = scene.records.manifest.axis.key if scene.records.manifest.axis else ""
    summaries = scene.summaries(metric)
    if not any(summary.n for summary in summaries.values()):
        return None
    figure = svg.new_figure(3.1)
    axes = svg.add_panel(figure, 0.68, 0.52, 0.15, 0.2)
    logarithmic = svg.is_power_series(list(places.values()))
    if logarithmic:
        axes.set_xscale("log", base=2)
    x = np.array([places[arm] for arm in scene.arms])
    values = np.array([_seed_values(scene, arm, metric) for arm in scene.arms])
    axes.plot(x, values, color=SOFT, linewidth=0.6, alpha=0.45, zorder=2)  # one line per seed: the pairing, visible
    axes.plot(x, [summaries[arm].mean for arm in scene.arms], color=INK, linewidth=1.1, zorder=3)
    hover = Hover(key, "point")
    for arm, at, row in zip(scene.arms, x, values, strict=True):
        summary = summaries[arm]
        text = f"{summary.text} {summary.interval_text}"
        hover.add(axes, arm, scene.looks[arm], [at], [summary.mean], [text], [number_format.compact(at)])
        _marks(axes, scene.looks[arm], [at] * len(row), row, summary, at)
        if scene.diverged(arm):
            side = {min(x): "left", max(x): "right"}.get(at, "center")
            axes.annotate(
                f"× {scene.diverged(arm)} diverged", (at, 1), xycoords=("data", "axes fraction"), ha=side,
                va="bottom", fontsize=svg.FONT - 1.5, color=ALARM, gid=scene.looks[arm].key,
            )  # fmt: skip
    if len(x) <= 12:
        svg.ticks_at(axes, x.tolist(), [number_format.compact(value) for value in x], rotate=len(x) > 9)
    svg.label(axes, key, scene.better(metric))
    return _drawn(
        "axis", metric, f"{metric} against {key}",
        "Small dots are single seeds, thin lines join the same seed; large marks are means with 95 % t intervals, "
        "joined by a line.",
        svg.to_svg(figure, f"{metric} against {key}"), hover,
    )  # fmt: skip


def by_arm(scene: Scene, metric: str) -> Drawn | None:
    """`metric` of every arm in rows: single seeds, mean and 95 % t interval."""
    summaries = scene.summaries(metric)
    if not any(summary.n for summary in summaries.values()):
        return None
    axes, figure = rows(scene.arms, metric)
    hover = Hover(metric, "point")
    for row, arm in enumerate(scene.arms):
        values, summary = _seed_values(scene, arm, metric), summaries[arm]
        text = f"{summary.text} {summary.interval_text}"
        hover.add(axes, arm, scene.looks[arm], [summary.mean], [row], [text])
        _marks(axes, scene.looks[arm], values, fan(values, row), summary, row, across=True)
        if scene.diverged(arm):
            _note(axes, row, f"× {scene.diverged(arm)} diverged", scene.looks[arm])
    svg.label(axes, scene.better(metric))
    axes.xaxis.label.set(x=1, ha="right")
    return _drawn(
        "arms", metric, f"{metric} by arm", "Small dots are single seeds; large marks are means with 95 % t intervals.",
        svg.to_svg(figure, f"{metric} by arm"), hover,
    )  # fmt: skip


def rows(arms: Sequence[str], metric: str) -> tuple[Axes, Figure]:
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


def _marks(
    axes: Axes, style: Style, x: Sequence[float], y: Sequence[float], summary: Summary, at: float, across: bool = False
) -> None:
    """An arm's single seeds, its mean and its interval; `across` lays the interval horizontally."""
    axes.plot(x, y, "o", color=style.color, markersize=3, alpha=0.5, markeredgewidth=0, zorder=3, gid=style.key)
    if not summary.n:
        return
    if math.isfinite(summary.lower):
        ends = [summary.lower, summary.upper]
        line = (ends, [at, at]) if across else ([at, at], ends)
        axes.plot(*line, color=style.color, linewidth=2, solid_capstyle="butt", zorder=4, gid=style.key)
    point = ([summary.mean], [at]) if across else ([at], [summary.mean])
    axes.plot(*point, style.marker, color=style.color, markersize=7, markeredgewidth=0, zorder=5, gid=style.key)


def _note(axes: Axes, row: int, text: str, style: Style) -> None:
    axes.annotate(
        text, (1, row), xytext=(0, 5), xycoords=("axes fraction", "data"), textcoords="offset points", ha="right",
        va="bottom", fontsize=svg.FONT - 1.5, color=ALARM, gid=style.key,
    )  # fmt: skip


def fan(values: Sequence[float], row: float) -> list[float]:
    """Vertical places of a row's seeds, spread a little so that equal values stay visible."""
    return (row + np.linspace(-0.2, 0.2, len(values))).tolist() if len(values) > 1 else [row] * len(values)


def _seed_values(scene: Scene, arm: str, metric: str) -> list[float]:
    nothing = np.full(len(scene.evidence.seeds), math.nan)
    return [float(value) for value in scene.evidence.values.get((arm, metric), nothing)]


def _drawn(kind: str, metric: str, title: str, caption: str, drawing: str, hover: Hover) -> Drawn:
    return Drawn(f"{kind}_{svg.slug(metric)}", title, caption, drawing, hover.plain())
