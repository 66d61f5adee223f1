"""Pareto plots: a metric against parameters, operations and pairs, and the arms that nothing beats."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Literal

from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullFormatter
from matplotlib.transforms import ScaledTranslation

from swapformer.report import number_format
from swapformer.report.figures import svg
from swapformer.report.figures.figure_data import FigureData, ReportFigure
from swapformer.report.figures.panels import draw_bar, draw_mark, draw_ring
from swapformer.report.figures.style import PAPER, SOFT, Style
from swapformer.report.figures.tooltips import Tooltips
from swapformer.report.statistics.arm_summary import Summary

ParetoRank = Literal["front", "open", "beaten"]


@dataclass(frozen=True)
class CostAxis:
    """One kind of cost: the axis' name, and each arm's cost."""

    name: str
    slug: str
    values: Mapping[str, float]


def known_costs(
    data: FigureData, flops: Mapping[str, float], pairs: Mapping[str, float] | None = None
) -> list[CostAxis]:
    """The kinds of cost that are known of at least two arms and not the same for all."""
    found = (
        CostAxis("parameters", "parameters", {row.arm: row.parameters for row in data.rows}),
        CostAxis("FLOP of a training, by analysis", "flops", flops),
        CostAxis("attended pairs of a sequence", "pairs", pairs or {}),
    )
    known = [
        replace(each, values={arm: cost for arm, cost in each.values.items() if math.isfinite(cost)}) for each in found
    ]
    return [each for each in known if len(set(each.values.values())) > 1]


def pareto_ranks(data: FigureData, metric: str, cost: CostAxis) -> dict[str, ParetoRank]:
    """Whether each arm is on the Pareto front. Only arms that lost no trial are compared, since survivors flatter.

    `front`: no arm is as cheap and better on average, or cheaper and as good. `beaten`: one is no dearer, and better
    beyond doubt (95 % t interval, uncorrected). `open`: beaten on average only.
    """
    summaries = data.summaries(metric)
    lost = {arm for arm in data.arms if data.evidence.lost(arm, metric).any()}
    arms = [arm for arm in data.arms if arm in cost.values and summaries[arm].n and arm not in lost]
    sign = 1 if data.evidence.directions[metric] == "higher" else -1
    found: dict[str, ParetoRank] = {}
    for arm in arms:
        worth = (-cost.values[arm], sign * summaries[arm].mean)
        rivals = [(o, (-cost.values[o], sign * summaries[o].mean)) for o in arms if o != arm]
        over = [o for o, other in rivals if other != worth and other[0] >= worth[0] and other[1] >= worth[1]]
        beaten = any(_better(data, metric, rival, arm, sign) for rival in over)
        found[arm] = "beaten" if beaten else "open" if over else "front"
    return found


def _better(data: FigureData, metric: str, rival: str, arm: str, sign: int) -> bool:
    """Whether the whole interval of the difference is on the good side."""
    estimate = data.evidence.mean_difference(rival, arm, metric)
    return estimate.lower(0.025) > 0 if sign > 0 else estimate.upper(0.025) < 0


def pareto_plots(
    data: FigureData, flops: Mapping[str, float], pairs: Mapping[str, float] | None = None
) -> list[ReportFigure | None]:
    """The study's first metric with a good direction against each of its costs. Call within `svg.settings`."""
    metric = next((name for name in data.records.manifest.metrics if name in data.evidence.directions), None)
    return [] if metric is None else [_figure(data, metric, cost) for cost in known_costs(data, flops, pairs)]


def _figure(data: FigureData, metric: str, cost: CostAxis) -> ReportFigure | None:
    found, summaries = pareto_ranks(data, metric, cost), data.summaries(metric)
    if len(found) < 2:
        return None
    columns, below = svg.legend_shape(list(found))
    figure = svg.new_figure(2.9 + below)
    axes = svg.add_panel(figure, 0.68, 0.55 + below, 0.18, 0.12)
    svg.label(axes, cost.name, data.label(metric))
    svg.legend(figure, {arm: data.styles[arm] for arm in found}, below, columns)
    tooltips = Tooltips(cost.name, "point")
    front = sorted((cost.values[arm], summaries[arm].mean) for arm, rank in found.items() if rank == "front")
    axes.plot([x for x, _ in front], [y for _, y in front], color=SOFT, linewidth=1, drawstyle="steps-post",
              linestyle=(0, (4, 2)), zorder=2)  # fmt: skip
    for arm, rank in found.items():
        with _set_apart(axes, _points_apart(arm, {arm: cost.values[arm] for arm in found})):
            _draw_arm(axes, data.styles[arm], cost.values[arm], summaries[arm], rank)
        text = f"{summaries[arm].full_text}, {_cost_text(cost, cost.values[arm])}"
        tooltips.add(axes, arm, data.styles[arm], [cost.values[arm]], [summaries[arm].mean], [text])
    _scale(axes, [cost.values[arm] for arm in found])
    caption = (
        "Bars are 95 % t intervals over finished seeds. Ringed, joined by the line: no arm is as cheap and better. "
        "Hollow: an arm that costs no more is better beyond doubt (95 % t interval)."
    )
    if len({cost.values[arm] for arm in found}) < len(found):
        caption += " Arms that cost the same stand side by side."
    if lost := [arm for arm in data.arms if data.evidence.lost(arm, metric).any()]:
        caption += f" Left out, since trials diverged or have no finite value: {', '.join(lost)}."
    if unknown := [arm for arm in data.arms if arm not in (*found, *lost)]:
        caption += f" Not drawn, since the cost or the value is not known: {', '.join(unknown)}."
    title = f"{metric} against {cost.name}"
    return ReportFigure.of(f"pareto_{cost.slug}_{svg.slug(metric)}", title, caption, figure, tooltips)


_APART, _TOGETHER = 9.0, 36.0
"""Points between the marks of arms that cost the same, and at most from the first to the last of them."""


def _points_apart(arm: str, costs: Mapping[str, float]) -> float:
    """The shift of an arm to the right of its cost, in points: arms of the same cost lie around it, in order."""
    same = [other for other, cost in costs.items() if cost == costs[arm]]
    return min(_APART, _TOGETHER / max(len(same) - 1, 1)) * (same.index(arm) - (len(same) - 1) / 2)


@contextmanager
def _set_apart(axes: Axes, points: float) -> Iterator[None]:
    """Draw what is drawn within so many points to the right of its values, which stay those of the axes' limits."""
    before = len(axes.lines)
    yield
    for line in axes.lines[before:] if points else ():
        line.set_transform(axes.transData + ScaledTranslation(points / 72, 0, axes.figure.dpi_scale_trans))


def _draw_arm(axes: Axes, style: Style, x: float, summary: Summary, rank: ParetoRank) -> None:
    draw_bar(axes, [x, x], [summary.lower, summary.upper], style, 1.6)
    draw_mark(axes, x, summary.mean, style, 7, edge=1.3, face=PAPER if rank == "beaten" else "")
    if rank == "front":
        draw_ring(axes, x, summary.mean, style, 13, 1.2)


def _scale(axes: Axes, costs: Sequence[float]) -> None:
    low, high = min(costs), max(costs)
    if low > 0 and high / low >= 8:
        axes.set_xscale("log")
        axes.set_xlim(low / (high / low) ** 0.08, high * (high / low) ** 0.08)
        # Ticks at 1, 2 and 5 times powers of ten within reach; only at powers where that would be many.
        powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
        steps = (1, 2, 5) if len(powers) <= 3 else (1,)
        axes.xaxis.set_major_locator(FixedLocator([step * 10.0**power for power in powers for step in steps]))
        axes.xaxis.set_minor_formatter(NullFormatter())
    else:
        pad = 0.08 * (high - low)
        axes.set_xlim(low - pad, high + pad)
        axes.xaxis.set_major_locator(MaxNLocator(5))
    digits = number_format.digits_for(low, high)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: number_format.scaled(value, digits)))


def _cost_text(cost: CostAxis, value: float) -> str:
    return f"{number_format.scaled(value)}FLOP" if cost.slug == "flops" else f"{number_format.large(value)} {cost.slug}"
