"""The picture of a ladder: loss over computation with the baseline's law; below, what arms change, and speed-ups."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
from matplotlib.axes import Axes

from swapformer.report.figures import svg
from swapformer.report.figures.figure_data import ReportFigure
from swapformer.report.figures.panels import draw_bar, draw_line
from swapformer.report.figures.scales import logarithmic
from swapformer.report.figures.style import INK, SOFT, Style
from swapformer.report.figures.tooltips import Tooltips
from swapformer.report.number_format import interval_text
from swapformer.report.statistics.ladder_effects import EffectLine
from swapformer.report.statistics.ladder_summary import LadderSummary


def ladder_plot(summary: LadderSummary, styles: Mapping[str, Style]) -> ReportFigure | None:
    """Losses, differences to the baseline and speed-ups over the operations of a training.

    None where operations are not counted. Call within `svg.settings`.
    """
    if not all(math.isfinite(each) and each > 0 for each in summary.computation.values()):
        return None
    shown = {arm: styles[arm] for arm in summary.means if arm in styles}
    columns, below = svg.legend_shape(list(shown))
    upper, lower, gap, foot = 2.0, 1.25, 0.5, 0.5 + below
    panels = [draw for draw, wanted in ((_effects, summary.effects), (_speed_ups, summary.arms)) if wanted]
    height = 0.14 + upper + len(panels) * (gap + lower) + foot
    figure = svg.new_figure(height)
    axes = svg.add_panel(figure, 0.74, height - 0.14 - upper, 0.14, 0.14)
    tooltips = Tooltips("operations of a training", "point")
    reach = [summary.next_computation] if math.isfinite(summary.next_computation) else []
    ends = (min(summary.computation.values()), max([*summary.computation.values(), *reach]))
    if summary.law is not None:
        along = np.geomspace(*ends, 60)
        axes.plot(along, summary.law.loss(along), color=INK, linewidth=1.0, linestyle=(0, (4, 2)), zorder=2)
    for arm, style in shown.items():
        points = [(summary.costs[arm, at], summary.means[arm][at], at) for at in summary.rungs]
        known = [point for point in points if math.isfinite(point[0]) and math.isfinite(point[1])]
        if known:
            xs, ys, names = ([*column] for column in zip(*known, strict=True))
            draw_line(axes, xs, ys, style, 5, 0.0 if arm == summary.baseline and summary.law else 1.0)
            tooltips.add(axes, arm, style, xs, ys, [f"{y:.4g}" for y in ys], [str(name) for name in names])
    costs = [cost for (arm, _), cost in summary.costs.items() if arm in shown and math.isfinite(cost) and cost > 0]
    ends = min(ends[0], *costs), max(ends[1], *costs)
    axes.set_xlim(ends[0] / 1.3, ends[1] * 1.3)
    logarithmic(axes, "x", 8)
    svg.label(axes, "" if panels else "operations of a training", summary.metric)
    svg.few_ticks(axes, "y", 6)
    for place, draw in enumerate(reversed(panels)):
        bottom = foot + place * (lower + gap)
        panel = svg.add_panel(figure, 0.74, bottom, 0.14, height - bottom - lower)
        draw(summary, shown, panel, tooltips, ends)
        if place:
            panel.set_xlabel("")
    svg.legend(figure, shown, below, columns)
    caption = "Means over seeds."
    if summary.law is not None:
        caption += " Dashed: the law that is fitted to the baseline."
    if summary.effects:
        caption += " Below: the difference to the baseline at each rung, with 95 % intervals"
        caption += ", and a line where three rungs or more lie on one." if any(_lines(summary)) else "."
    if summary.arms:
        caption += (
            " Lowest: how many times its operations the baseline would need for the arm's loss, with 95 % intervals "
            "(not corrected for several comparisons; one with an open end has no bar); hollow: what is expected at the "
            "next size."
        )
    return ReportFigure.of(
        f"ladder_{svg.slug(summary.metric)}", f"{summary.metric} over sizes", caption, figure, tooltips
    )


def _lines(summary: LadderSummary) -> list[EffectLine]:
    return [each.line for each in summary.effects if each.line is not None]


def _effects(
    summary: LadderSummary, styles: Mapping[str, Style], axes: Axes, tooltips: Tooltips, ends: tuple[float, float]
) -> None:
    axes.axhline(0, color=SOFT, linewidth=1, zorder=1)
    seen = [0.0]
    for index, each in enumerate(summary.effects):
        style, shift = styles[each.arm], 1.06 ** (index - (len(summary.effects) - 1) / 2)
        means = [row[0] for row in each.rungs.values()]
        xs = [summary.computation[at] * shift for at in each.rungs]
        reach = 4 * max(map(abs, means))  # an interval of few seeds may be so wide that no mean is told from another
        for x, (_, low, high) in zip(xs, each.rungs.values(), strict=True):
            if math.isfinite(low) and math.isfinite(high):
                draw_bar(axes, [x, x], [low, high], style)
                seen += [max(low, -reach), min(high, reach)]
        axes.plot(xs, means, style.marker, color=style.color, markersize=5, zorder=4, gid=style.key)
        if each.line is not None:
            along = np.geomspace(min(xs), max(xs), 20)
            axes.plot(along, each.line.at(along / shift), color=style.color, linewidth=1.2, zorder=3, gid=style.key)
        seen += means
        texts = [interval_text(*row, signed=True) for row in each.rungs.values()]
        at = [summary.computation[name] for name in each.rungs]  # the marks stand beside one another there
        tooltips.add(
            axes, each.arm, style, at, means, texts, list(each.rungs), [row[1:] for row in each.rungs.values()]
        )
    room = 0.08 * (max(seen) - min(seen)) or 1.0
    axes.set_xlim(ends[0] / 1.3, ends[1] * 1.3)
    axes.set_ylim(min(seen) - room, max(seen) + room)
    logarithmic(axes, "x", 8)
    svg.few_ticks(axes, "y", 4)
    svg.label(axes, "operations of a training", f"Δ to {summary.baseline}")


def _speed_ups(
    summary: LadderSummary, styles: Mapping[str, Style], axes: Axes, tooltips: Tooltips, ends: tuple[float, float]
) -> None:
    axes.axhline(1, color=SOFT, linewidth=1, zorder=1)
    seen = [1.0]
    for index, each in enumerate(summary.arms):
        style, shift = styles[each.arm], 1.06 ** (index - (len(summary.arms) - 1) / 2)
        known = {at: row for at, row in each.rungs.items() if math.isfinite(row[0])}
        xs = [summary.computation[at] * shift for at in known]
        for x, (_, low, high) in zip(xs, known.values(), strict=True):
            if math.isfinite(high) and low > 0:
                draw_bar(axes, [x, x], [low, high], style)
        means = [row[0] for row in known.values()]
        draw_line(axes, xs, means, style, 5, 1.0, order=4)
        seen += [*means, *(end for row in known.values() for end in row[1:] if math.isfinite(end) and 0.05 < end < 20)]
        texts = [interval_text(*row) for row in known.values()]
        at = [summary.computation[name] for name in known]  # the marks stand beside one another there
        tooltips.add(axes, each.arm, style, at, means, texts, list(known), [row[1:] for row in known.values()])
        value, low, high = each.next_size
        if math.isfinite(value) and math.isfinite(summary.next_computation):
            x = summary.next_computation * shift
            if math.isfinite(high) and low > 0:
                draw_bar(axes, [x, x], [low, high], style)
            axes.plot([x], [value], style.marker, color=style.color, markerfacecolor="none", markersize=5, zorder=4,
                      gid=style.key)  # fmt: skip
            seen += [value, *(end for end in (low, high) if math.isfinite(end) and 0.05 < end < 20)]
            said, there = [interval_text(value, low, high)], [summary.next_computation]
            tooltips.add(axes, each.arm, style, there, [value], said, ["the next size"], [(low, high)])
    axes.set_xlim(ends[0] / 1.3, ends[1] * 1.3)
    axes.set_ylim(min(seen) / 1.1, max(seen) * 1.1)
    logarithmic(axes, "x", 8)
    logarithmic(axes, "y", 4)
    if max(seen) / min(seen) < 2.5:
        axes.set_yscale("linear")
        svg.few_ticks(axes, "y", 4)
    svg.label(axes, "operations of a training", "speed-up")
