"""The figure of a grid: differences to the baseline in every condition; lines that are not level are interactions."""

from __future__ import annotations

import math
from collections.abc import Mapping

from swapformer.report.figures import svg
from swapformer.report.figures.figure_data import FigureData, ReportFigure
from swapformer.report.figures.panels import draw_bar, draw_line, is_separate, line_panels
from swapformer.report.figures.style import INK
from swapformer.report.figures.tooltips import Tooltips
from swapformer.report.number_format import interval_text
from swapformer.report.statistics.arm_summary import Comparison
from swapformer.results.arms import Values


def grid_plot(metric: str, conditions: Mapping[str, Values], data: Mapping[str, FigureData]) -> ReportFigure | None:
    """Paired differences to the baseline by condition; None where there is nothing to compare.

    Call within `svg.settings`.
    """
    first = next(iter(data.values()))
    found = {arm: _comparisons(arm, metric, data) for arm in first.styles if arm != first.baseline}
    found = {arm: comparisons for arm, comparisons in found.items() if any(comparisons)}
    if not found:
        return None
    factors = " × ".join(next(iter(conditions.values())))
    figure, panels = line_panels(list(found), first.styles, factors, f"difference to {first.baseline}")
    tooltips = Tooltips(factors, "point")
    for axes in dict.fromkeys(panels.values()):
        axes.axhline(0, color=INK, linewidth=1, zorder=1)
        names = [svg.wrap(", ".join(values.values()), 14) for values in conditions.values()]
        svg.ticks_at(axes, range(len(names)), names, rotate=len(names) > 5)
        axes.set_xlim(-0.4, len(names) - 0.6)
    for index, (arm, comparisons) in enumerate(found.items()):
        axes, style = panels[arm], first.styles[arm]
        shift = 0.3 * ((index + 0.5) / len(found) - 0.5) if not is_separate(panels) else 0.0
        rows = [(c.difference, c.lower, c.upper) if c else (math.nan,) * 3 for c in comparisons]
        xs = [position + shift for position in range(len(rows))]
        for x, (_, lower, upper) in zip(xs, rows, strict=True):
            draw_bar(axes, [x, x], [lower, upper], style)
        means = [mean for mean, *_ in rows]
        draw_line(axes, xs, means, style, 6, 1.1, order=4)
        texts, ends = [interval_text(*row, signed=True) for row in rows], [row[1:] for row in rows]
        tooltips.add(axes, arm, style, xs, means, texts, list(data), ends)
    return ReportFigure.of(
        f"grid_{svg.slug(metric)}",
        f"{metric}: differences to {first.baseline} by condition",
        "Mean differences with 95 % t intervals, not corrected for several comparisons. Lines that are not "
        "level are interactions.",
        figure,
        tooltips,
        f"{metric} by condition",
    )


def _comparisons(arm: str, metric: str, data: Mapping[str, FigureData]) -> list[Comparison | None]:
    """The arm's difference in each condition, where it has any."""
    return [each.summaries(metric)[arm].paired if arm in each.evidence.arms else None for each in data.values()]
