"""Where lines are drawn: one panel for few arms, a grid of small ones for many."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from swapformer.report.figures import svg
from swapformer.report.figures.style import INK, Style

MAX_TOGETHER = 6  # arms in one panel; beyond that each arm has its own


def panels(arms: Sequence[str], looks: Mapping[str, Style], x: str, y: str) -> tuple[Figure, dict[str, Axes]]:
    """One panel for few arms, with a legend; one panel each for many, with shared axes and the name above."""
    if len(arms) > MAX_TOGETHER:
        return _grid(arms, x, y)
    columns, below = svg.legend_shape(arms)
    figure = svg.new_figure(2.75 + below)
    axes = svg.add_panel(figure, 0.68, 0.52 + below, 0.12, 0.12)
    svg.label(axes, x, y)
    svg.few_ticks(axes, "x", 6)
    svg.legend(figure, {arm: looks[arm] for arm in arms}, below, columns)
    return figure, dict.fromkeys(arms, axes)


def _grid(arms: Sequence[str], x: str, y: str) -> tuple[Figure, dict[str, Axes]]:
    """Three panels a row; each row leaves as much room above it as its longest name needs."""
    names = [svg.wrap(arm, 19) for arm in arms]
    rows = [range(start, min(start + 3, len(arms))) for start in range(0, len(arms), 3)]
    heads = [0.14 + 0.145 * max(names[i].count("\n") + 1 for i in row) for row in rows]
    plot, foot, left, gutter = 0.88, 0.56, 0.68, 0.14
    cell = (svg.WIDTH - left - 0.08) / 3
    height = foot + sum(heads) + plot * len(rows)
    figure = svg.new_figure(height)
    placed: dict[str, Axes] = {}
    above = 0.0
    for row, head in zip(rows, heads, strict=True):
        above += head
        for column, index in enumerate(row):
            start = left + column * cell
            first = next(iter(placed.values()), None)
            edges = (start, height - above - plot, svg.WIDTH - start - cell + gutter, above)
            placed[arms[index]] = axes = svg.add_panel(figure, *edges, first)
            svg.title(axes, names[index], svg.FONT - 1.5)
            axes.tick_params(labelleft=column == 0, labelbottom=index + 3 >= len(arms), labelsize=svg.FONT - 1.5)
            svg.few_ticks(axes, "x", 3)
            svg.few_ticks(axes, "y", 4)
        above += plot
    figure.supxlabel(x, fontsize=svg.FONT, color=INK, y=0.07 / height, va="bottom")
    figure.supylabel(y, fontsize=svg.FONT, color=INK, x=0.05 / svg.WIDTH, ha="left")
    return figure, placed
