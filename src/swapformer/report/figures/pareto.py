"""What quality costs: a metric against parameters, operations and measured time, and the arms that nothing beats."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullFormatter

from swapformer.report import number_format
from swapformer.report.figures import svg
from swapformer.report.figures.figure_data import Drawn, Scene
from swapformer.report.figures.prices import Price, Standing, prices, standings
from swapformer.report.figures.style import PAPER, SOFT, Style
from swapformer.report.figures.tooltips import Hover
from swapformer.report.statistics.arm_summary import Summary
from swapformer.results.costs import Measured


def draw(scene: Scene, flops: Mapping[str, float], timed: Mapping[str, Measured]) -> list[Drawn]:
    """The study's first metric with a good direction against each of its costs. Call within `svg.settings`."""
    metric = next((name for name in scene.records.manifest.metrics if name in scene.evidence.directions), None)
    if metric is None:
        return []
    drawn = [_figure(scene, metric, price) for price in prices(scene, flops, timed)]
    return [figure for figure in drawn if figure is not None]


def _figure(scene: Scene, metric: str, price: Price) -> Drawn | None:
    found, summaries = standings(scene, metric, price), scene.summaries(metric)
    if len(found) < 2:
        return None
    columns, below = svg.legend_shape(list(found))
    figure = svg.new_figure(2.9 + below)
    axes = svg.add_panel(figure, 0.68, 0.55 + below, 0.18, 0.12)
    svg.label(axes, price.name, scene.better(metric))
    svg.legend(figure, {arm: scene.looks[arm] for arm in found}, below, columns)
    hover = Hover(price.name, "point")
    _staircase(axes, [(price.values[a][0], summaries[a].mean) for a, s in found.items() if s == "front"])
    for arm, standing in found.items():
        _mark(axes, scene.looks[arm], price.values[arm], summaries[arm], standing)
        text = f"{summaries[arm].text} {summaries[arm].interval_text}, {_said(price, price.values[arm])}"
        hover.add(axes, arm, scene.looks[arm], [price.values[arm][0]], [summaries[arm].mean], [text])
    _scale(axes, price, [price.values[arm] for arm in found])
    caption = (
        "Bars are 95 % t intervals over finished seeds"
        + (", and the range over rounds of timing" if price.slug == "time" else "")
        + ". Ringed, joined by the line: no arm is as cheap and better. Hollow: an arm that costs no more is better "
        "beyond doubt (paired 95 % t interval)."
    )
    if lost := [arm for arm in scene.arms if scene.evidence.lost(arm, metric).any()]:
        caption += f" Left out, since trials diverged or have no finite value: {', '.join(lost)}."
    title = f"{metric} against {price.name}"
    drawing = svg.to_svg(figure, title)
    return Drawn(f"pareto_{price.slug}_{svg.slug(metric)}", title, caption, drawing, hover.plain())


def _mark(axes: Axes, look: Style, ends: tuple[float, float, float], summary: Summary, standing: Standing) -> None:
    x, low, high = ends
    bar = {"color": look.color, "linewidth": 1.6, "solid_capstyle": "butt", "zorder": 3, "gid": look.key}
    if math.isfinite(summary.lower):
        axes.plot([x, x], [summary.lower, summary.upper], **bar)  # type: ignore[arg-type]
    if high > low:
        axes.plot([low, high], [summary.mean] * 2, **bar)  # type: ignore[arg-type]
    face = PAPER if standing == "beaten" else look.color
    axes.plot([x], [summary.mean], look.marker, markersize=7, markerfacecolor=face, markeredgecolor=look.color,
              markeredgewidth=1.3, zorder=4, gid=look.key)  # fmt: skip
    if standing == "front":
        axes.plot([x], [summary.mean], "o", markersize=13, markerfacecolor="none", markeredgecolor=look.color,
                  markeredgewidth=1.2, zorder=4, gid=look.key)  # fmt: skip


def _staircase(axes: Axes, points: Sequence[tuple[float, float]]) -> None:
    """The best that is to be had for a price: it changes where an arm of the front comes into reach."""
    ordered = sorted(points)
    axes.plot([x for x, _ in ordered], [y for _, y in ordered], color=SOFT, linewidth=1, drawstyle="steps-post",
              linestyle=(0, (4, 2)), zorder=2)  # fmt: skip


def _scale(axes: Axes, price: Price, values: Sequence[tuple[float, float, float]]) -> None:
    edges = [edge for ends in values for edge in ends]
    low, high = min(edges), max(edges)
    if low > 0 and high / low >= 8:
        axes.set_xscale("log")
        axes.set_xlim(low / (high / low) ** 0.08, high * (high / low) ** 0.08)
        axes.xaxis.set_major_locator(FixedLocator(_decades(low, high)))
        axes.xaxis.set_minor_formatter(NullFormatter())
    else:
        pad = 0.08 * (high - low)
        axes.set_xlim(low - pad, high + pad)
        axes.xaxis.set_major_locator(MaxNLocator(5))
    digits = number_format.digits_for(low, high)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: _short(price, value, digits)))


def _decades(low: float, high: float) -> list[float]:
    """1, 2 and 5 times powers of ten within reach; powers alone where that would be many."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    steps = (1, 2, 5) if len(powers) <= 3 else (1,)
    return [step * 10.0**power for power in powers for step in steps]


def _short(price: Price, value: float, digits: int) -> str:
    return number_format.seconds(value, digits) if price.slug == "time" else number_format.scaled(value, digits)


def _said(price: Price, ends: tuple[float, float, float]) -> str:
    if price.slug == "time":
        middle, low, high = map(number_format.seconds, ends)
        return f"{middle} a step ({low} to {high})"
    return (
        f"{number_format.large(ends[0])} parameters"
        if price.slug == "parameters"
        else f"{number_format.scaled(ends[0])}FLOP"
    )
