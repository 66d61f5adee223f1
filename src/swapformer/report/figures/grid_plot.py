"""The figure of a grid: each arm's mean in every condition; lines that are not parallel are interactions."""

from __future__ import annotations

import math
from collections.abc import Mapping

from swapformer.report.figures import svg
from swapformer.report.figures.figure_data import FigureData, ReportFigure
from swapformer.report.figures.panels import draw_bar, draw_line, is_separate, line_panels
from swapformer.report.figures.scales import logarithmic
from swapformer.report.figures.tooltips import Tooltips
from swapformer.report.number_format import interval_text
from swapformer.results.arms import Values

DECADES = 30.0
"""The largest mean over the smallest from which on the axis is logarithmic."""


def grid_plot(metric: str, conditions: Mapping[str, Values], data: Mapping[str, FigureData]) -> ReportFigure | None:
    """Means by condition, with 95 % intervals; None where no arm has a value.

    Call within `svg.settings`.
    """
    first = next(iter(data.values()))
    nothing = (math.nan,) * 3
    found = {}
    for arm in first.styles:
        summaries = [each.summaries(metric)[arm] if arm in each.evidence.arms else None for each in data.values()]
        rows = [(s.mean, s.lower, s.upper) if s is not None and s.n else nothing for s in summaries]
        if any(math.isfinite(mean) for mean, *_ in rows):
            found[arm] = rows
    if not found:
        return None
    factors = " × ".join(next(iter(conditions.values())))
    figure, panels = line_panels(list(found), first.styles, factors, metric)
    tooltips = Tooltips(factors, "point")
    means = [mean for rows in found.values() for mean, *_ in rows if math.isfinite(mean)]
    for axes in dict.fromkeys(panels.values()):
        names = [svg.wrap(", ".join(values.values()), 14) for values in conditions.values()]
        svg.ticks_at(axes, range(len(names)), names, rotate=len(names) > 5)
        axes.set_xlim(-0.4, len(names) - 0.6)
    for index, (arm, rows) in enumerate(found.items()):
        axes, style = panels[arm], first.styles[arm]
        shift = 0.3 * ((index + 0.5) / len(found) - 0.5) if not is_separate(panels) else 0.0
        xs = [position + shift for position in range(len(rows))]
        for x, (_, lower, upper) in zip(xs, rows, strict=True):
            draw_bar(axes, [x, x], [lower, upper], style)
        draw_line(axes, xs, [mean for mean, *_ in rows], style, 6, 1.1, order=4)
        texts, ends = [interval_text(*row) for row in rows], [row[1:] for row in rows]
        tooltips.add(axes, arm, style, xs, [mean for mean, *_ in rows], texts, list(data), ends)
    if min(means) > 0 and max(means) > DECADES * min(means):
        for axes in dict.fromkeys(panels.values()):
            axes.set_ylim(min(means) / 2, max(means) * 2)
            logarithmic(axes, "y", 6)
    return ReportFigure.of(
        f"grid_{svg.slug(metric)}",
        f"{metric} by condition",
        "Means with 95 % t intervals, not corrected for several comparisons. Lines that are not parallel are "
        "interactions.",
        figure,
        tooltips,
        f"{metric} by condition",
    )
