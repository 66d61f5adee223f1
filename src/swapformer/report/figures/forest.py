"""The forest plot: differences to the baseline, with the margins of the study's claims."""

from __future__ import annotations

import math
from collections.abc import Sequence

from matplotlib.axes import Axes

from swapformer.report.figures import svg
from swapformer.report.figures.figure_data import FigureData, ReportFigure
from swapformer.report.figures.panels import draw_bar, draw_mark
from swapformer.report.figures.strip_plot import jitter, row_panel
from swapformer.report.figures.style import INK, SOFT, Style
from swapformer.report.figures.tooltips import Tooltips
from swapformer.report.statistics.arm_summary import Comparison
from swapformer.report.statistics.claim_fields import difference
from swapformer.report.statistics.comparisons import MeanClaim


def forest_plot(data: FigureData, metric: str) -> ReportFigure | None:
    """Differences to the baseline with 95 % t intervals, and the margins that claims set for them in this condition."""
    summaries = data.summaries(metric)
    compared = {arm: summary.paired for arm, summary in summaries.items() if summary.paired is not None}
    if not compared:
        return None
    axes, figure = row_panel(list(compared), metric)
    axes.axvline(0, color=INK, linewidth=1, zorder=1)
    mean = summaries[data.baseline].mean if data.baseline in summaries else math.nan
    widths = {
        claim.margin_width(mean)
        for claim in data.claims
        if isinstance(claim, MeanClaim)
        and claim.of_means
        and claim.metric == metric
        and data.baseline in claim.others(data.evidence)
    }
    margins = sorted(width for width in widths if width > 0 and math.isfinite(width))
    for margin in margins[:1]:
        axes.axvspan(-margin, margin, color=SOFT, alpha=0.13, linewidth=0, zorder=0)
    for edge in (side * margin for margin in margins for side in (-1, 1)):
        axes.axvline(edge, color=SOFT, linewidth=0.8, linestyle=(0, (2, 2)), zorder=1)
    _frame(axes, list(compared.values()), margins)
    given_up = {arm: data.evidence.flattering_limits(difference(arm, data.baseline, metric)) for arm in compared}
    tooltips = Tooltips("difference", "point")
    for row, (arm, comparison) in enumerate(compared.items()):
        ends = [(comparison.lower, comparison.upper)]
        tooltips.add(axes, arm, data.styles[arm], [comparison.difference], [row], [comparison.full_text], ends=ends)
        _draw_difference(axes, row, data.styles[arm], comparison, given_up[arm])
    svg.label(axes, svg.wrap(f"difference to {data.baseline}", 60))
    axes.xaxis.label.set(x=1, ha="right")
    _name_sides(axes, data.evidence.directions.get(metric))
    paired = {comparison.paired for comparison in compared.values()}
    how = "paired by seed, " if paired == {True} else "paired by seed where arms share some, " if True in paired else ""
    caption = f"Small dots are seeds, bars 95 % t intervals, {how}not corrected for several comparisons."
    if paired == {False}:
        caption = "Bars are 95 % t intervals of independent samples (Welch), not corrected for several comparisons."
    widest = max(map(abs, axes.get_xlim()))
    for sizes, said in (
        ([f"±{margin:.3g}" for margin in margins if margin <= widest], "Dashed lines mark the margins of the claims"),
        ([f"±{margin:.3g}" for margin in margins if margin > widest], "Margins of claims that lie outside the picture"),
    ):
        caption += f" {said}: {', '.join(sizes)}." if sizes else ""
    if any(any(ends) for ends in given_up.values()):
        caption += " An arrow is an open end: the mean would flatter an arm whose trials were lost or cut off."
    title = f"{metric}: differences to {data.baseline}"
    return ReportFigure.of(f"forest_{svg.slug(metric)}", title, caption, figure, tooltips)


def _draw_difference(axes: Axes, row: int, style: Style, comparison: Comparison, given_up: tuple[bool, bool]) -> None:
    """Seeds, interval and mean; no bar where nothing is known of either end, such as of what no seed changes."""
    values = comparison.individual.tolist()
    axes.plot(values, jitter(values, row), "o", markersize=2.6, alpha=0.5, zorder=2, color=style.color,
              markeredgewidth=0, gid=style.key)  # fmt: skip
    left, right = axes.get_xlim()
    if comparison.pairs > 1 and (any(given_up) or math.isfinite(comparison.lower) or math.isfinite(comparison.upper)):
        draw_bar(axes, [max(comparison.lower, left), min(comparison.upper, right)], [row, row], style, 2)
        for is_open, limit, head in zip(given_up, (left, right), "<>", strict=True):
            if is_open:
                axes.plot([limit], [row], head, markersize=6, clip_on=False, zorder=4, color=style.color,
                          markeredgewidth=0, gid=style.key)  # fmt: skip
    draw_mark(axes, comparison.difference, row, style, 6.5)


def _frame(axes: Axes, comparisons: Sequence[Comparison], margins: Sequence[float]) -> None:
    """Horizontal limits that hold every finite end, every seed, zero and the margins that are in reach."""
    edges = [edge for c in comparisons for edge in (c.lower, c.upper, *c.individual) if math.isfinite(edge)]
    reach = max((abs(edge) for edge in edges), default=1.0) or 1.0
    edges += [0.0] + [side * margin for margin in margins for side in (-1, 1) if margin <= 2 * reach]
    pad = 0.06 * ((max(edges) - min(edges)) or reach)
    axes.set_xlim(min(edges) - pad, max(edges) + pad)


def _name_sides(axes: Axes, direction: str | None) -> None:
    """Say above the panel which side is better."""
    if direction is None:
        return
    better = ("← better", "worse →") if direction == "lower" else ("← worse", "better →")
    for text, x, side in ((better[0], 0.0, "left"), (better[1], 1.0, "right")):
        axes.annotate(
            text, (x, 1), xytext=(0, 3), xycoords="axes fraction", textcoords="offset points", ha=side, va="bottom",
            fontsize=svg.FONT - 1.5, color=SOFT,
        )  # fmt: skip
