"""The forest plot: paired differences to the baseline, with the margins of the study's claims."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes

from swapformer.report.figures import svg
from swapformer.report.figures.figure_data import Drawn, Scene
from swapformer.report.figures.strip_plot import fan, rows
from swapformer.report.figures.style import INK, SOFT, Style
from swapformer.report.figures.tooltips import Hover
from swapformer.report.statistics.arm_summary import Comparison
from swapformer.report.statistics.claims import Claim


def forest_plot(scene: Scene, metric: str) -> Drawn | None:
    """Paired differences to the baseline with 95 % t intervals, and the margins that the study's claims set."""
    compared = [(arm, summary.comparison) for arm, summary in scene.summaries(metric).items() if summary.comparison]
    compared = [(arm, comparison) for arm, comparison in compared if comparison.pairs]
    if not compared:
        return None
    axes, figure = rows([arm for arm, _ in compared], metric)
    axes.axvline(0, color=INK, linewidth=1, zorder=1)
    margins = _margins(scene, metric)
    for margin in margins[:1]:
        axes.axvspan(-margin, margin, color=SOFT, alpha=0.13, linewidth=0, zorder=0)
    for edge in (side * margin for margin in margins for side in (-1, 1)):
        axes.axvline(edge, color=SOFT, linewidth=0.8, linestyle=(0, (2, 2)), zorder=1)
    _frame(axes, [comparison for _, comparison in compared], margins)
    hover = Hover("difference", "point")
    for row, (arm, comparison) in enumerate(compared):
        hover.add(
            axes, arm, scene.looks[arm], [comparison.difference], [row],
            [f"{comparison.text} {comparison.interval_text}"],
        )  # fmt: skip
        _difference(axes, row, scene.looks[arm], comparison)
    svg.label(axes, svg.wrap(f"difference to {scene.baseline}", 60))
    axes.xaxis.label.set(x=1, ha="right")
    _sides(axes, scene.evidence.directions.get(metric))
    caption = "Paired by seed: small dots are seeds, bars 95 % t intervals, not corrected for several comparisons."
    if margins:
        sizes = ", ".join(f"±{margin:.3g}" for margin in margins)
        caption += f" Dashed lines mark the margins of the study's claims: {sizes}."
    if any(math.isinf(c.lower) or math.isinf(c.upper) for _, c in compared):
        caption += " An arrow is an open end: the mean over survivors would flatter an arm that diverged."
    title = f"{metric}: differences to {scene.baseline}"
    return Drawn(f"forest_{svg.slug(metric)}", title, caption, svg.to_svg(figure, title), hover.plain())


def _difference(axes: Axes, row: int, style: Style, comparison: Comparison) -> None:
    values = comparison.individual.tolist()
    whole = dict[str, Any](color=style.color, markeredgewidth=0, gid=style.key)
    axes.plot(values, fan(values, row), "o", markersize=2.6, alpha=0.5, zorder=2, **whole)
    left, right = axes.get_xlim()
    low, high = max(comparison.lower, left), min(comparison.upper, right)
    if comparison.pairs > 1:
        axes.plot(
            [low, high], [row, row], color=style.color, linewidth=2, solid_capstyle="butt", zorder=3, gid=style.key
        )
        for edge, limit, head in ((comparison.lower, left, "<"), (comparison.upper, right, ">")):
            if math.isinf(edge):
                axes.plot([limit], [row], head, markersize=6, clip_on=False, zorder=4, **whole)
    axes.plot([comparison.difference], [row], style.marker, markersize=6.5, zorder=4, **whole)


def _frame(axes: Axes, comparisons: Sequence[Comparison], margins: Sequence[float]) -> None:
    """Horizontal limits that hold every finite end, every seed, zero and the margins that are in reach."""
    edges = [edge for c in comparisons for edge in (c.lower, c.upper, *c.individual) if math.isfinite(edge)]
    reach = max((abs(edge) for edge in edges), default=1.0) or 1.0
    edges += [0.0] + [side * margin for margin in margins for side in (-1, 1) if margin <= 2 * reach]
    pad = 0.06 * ((max(edges) - min(edges)) or reach)
    axes.set_xlim(min(edges) - pad, max(edges) + pad)


def _margins(scene: Scene, metric: str) -> list[float]:
    """The distinct margins that claims set for this metric, in its units."""
    reference = scene.summaries(metric).get(scene.baseline)
    mean = reference.mean if reference else math.nan

    def of(claim: Claim) -> float:
        return claim.width(mean)

    found = {of(claim) for claim in scene.claims if claim.metric == metric}
    return sorted(margin for margin in found if margin > 0 and math.isfinite(margin))


def _sides(axes: Axes, direction: str | None) -> None:
    """Say above the panel which side is better."""
    if direction is None:
        return
    better = ("← better", "worse →") if direction == "lower" else ("← worse", "better →")
    for text, x, side in ((better[0], 0.0, "left"), (better[1], 1.0, "right")):
        axes.annotate(
            text, (x, 1), xytext=(0, 3), xycoords="axes fraction", textcoords="offset points", ha=side, va="bottom",
            fontsize=svg.FONT - 1.5, color=SOFT,
        )  # fmt: skip
