"""What quality costs: a metric against parameters, operations and measured time, and the arms that nothing beats."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullFormatter

from swapformer.report import canvas, formats
from swapformer.report.costs import Measured
from swapformer.report.hover import Hover
from swapformer.report.scene import Drawn, Scene
from swapformer.report.style import PAPER, SOFT, Style
from swapformer.report.summaries import Summary

Standing = Literal["front", "open", "beaten"]


@dataclass(frozen=True)
class Price:
    """A kind of cost: what the axis says, and each arm's cost with its ends (all three the same where it is exact)."""

    name: str
    slug: str
    unit: str
    values: Mapping[str, tuple[float, float, float]]


def prices(scene: Scene, flops: Mapping[str, float], timed: Mapping[str, Measured]) -> list[Price]:
    """The costs that are known of at least two arms and not the same for all."""
    found = [
        Price("parameters", "parameters", "", {row.arm: (row.parameters,) * 3 for row in scene.rows}),
        Price("FLOP of a training, by analysis", "flops", "FLOP", {arm: (each,) * 3 for arm, each in flops.items()}),
        Price(
            "measured seconds of a step", "time", "s",
            {arm: (each.step, min(each.seconds), max(each.seconds)) for arm, each in timed.items()},
        ),
    ]  # fmt: skip
    known = [
        Price(p.name, p.slug, p.unit, {arm: ends for arm, ends in p.values.items() if math.isfinite(ends[0])})
        for p in found
    ]
    return [price for price in known if len({ends[0] for ends in price.values.values()}) > 1]


def draw(scene: Scene, flops: Mapping[str, float], timed: Mapping[str, Measured]) -> list[Drawn]:
    """The study's first metric with a good direction against each of its costs. Call within `canvas.settings`."""
    metric = next((name for name in scene.records.manifest.metrics if name in scene.evidence.directions), None)
    if metric is None:
        return []
    drawn = [_figure(scene, metric, price) for price in prices(scene, flops, timed)]
    return [figure for figure in drawn if figure is not None]


def standings(scene: Scene, metric: str, price: Price) -> dict[str, Standing]:
    """Where each arm stands. Only arms whose trials all ended well are weighed: survivors of a divergence flatter.

    `front`: no arm is as cheap and better on average, or cheaper and as good. `beaten`: one is no dearer beyond its
    spread, and better beyond doubt (paired 95 % t interval, uncorrected). `open`: beaten on average only.
    """
    summaries = scene.summaries(metric)
    arms = [arm for arm in scene.arms if arm in price.values and summaries[arm].n and not scene.diverged(arm)]
    sign = 1 if scene.evidence.directions[metric] == "higher" else -1
    found: dict[str, Standing] = {}
    for arm in arms:
        worth = (-price.values[arm][0], sign * summaries[arm].mean)
        rivals = [(o, (-price.values[o][0], sign * summaries[o].mean)) for o in arms if o != arm]
        over = [o for o, other in rivals if other != worth and other[0] >= worth[0] and other[1] >= worth[1]]
        sure = [o for o in over if price.values[o][2] <= max(price.values[arm][1], price.values[o][0])]
        beaten = any(_better(scene, metric, rival, arm, sign) for rival in sure)
        found[arm] = "beaten" if beaten else "open" if over else "front"
    return found


def _better(scene: Scene, metric: str, rival: str, arm: str, sign: int) -> bool:
    """Whether the paired difference lies on the good side, all of its interval."""
    estimate = scene.evidence.mean_difference(rival, arm, metric)
    return estimate.lower(0.025) > 0 if sign > 0 else estimate.upper(0.025) < 0


def _figure(scene: Scene, metric: str, price: Price) -> Drawn | None:
    found, summaries = standings(scene, metric, price), scene.summaries(metric)
    if len(found) < 2:
        return None
    columns, below = canvas.legend_shape(list(found))
    figure = canvas.new_figure(2.9 + below)
    axes = canvas.add_panel(figure, 0.68, 0.55 + below, 0.18, 0.12)
    canvas.label(axes, price.name, scene.better(metric))
    canvas.legend(figure, {arm: scene.looks[arm] for arm in found}, below, columns)
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
    if lost := [arm for arm in scene.arms if scene.diverged(arm)]:
        caption += f" Left out, since trials diverged: {', '.join(lost)}."
    title = f"{metric} against {price.name}"
    svg = canvas.to_svg(figure, title)
    return Drawn(f"pareto_{price.slug}_{canvas.slug(metric)}", title, caption, svg, hover.plain())


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
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: _short(price, value)))


def _decades(low: float, high: float) -> list[float]:
    """1, 2 and 5 times powers of ten within reach; powers alone where that would be many."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    steps = (1, 2, 5) if len(powers) <= 3 else (1,)
    return [step * 10.0**power for power in powers for step in steps]


def _short(price: Price, value: float) -> str:
    if price.slug == "time":
        return formats.seconds(value)
    return formats.scaled(value)


def _said(price: Price, ends: tuple[float, float, float]) -> str:
    if price.slug == "time":
        return f"{formats.seconds(ends[0])} a step ({formats.seconds(ends[1])} to {formats.seconds(ends[2])})"
    return f"{formats.large(ends[0])} parameters" if price.slug == "parameters" else f"{formats.scaled(ends[0])}FLOP"
