"""The picture of a baseline's noise: which difference so many seeds see, metric by metric."""

from __future__ import annotations

from collections.abc import Sequence

from swapformer.report import number_format
from swapformer.report.figures import svg
from swapformer.report.figures.figure_data import ReportFigure
from swapformer.report.figures.panels import draw_line
from swapformer.report.figures.scales import logarithmic
from swapformer.report.figures.style import INK, SOFT, series_styles
from swapformer.report.statistics.noise import MetricNoise

XS = (3, 4, 5, 6, 8, 10, 12, 16, 20)
MOST_PANELS = 6
FINAL = "final evaluation"


def noise_plot(noises: Sequence[MetricNoise]) -> ReportFigure | None:
    """The difference that n seeds see, of the first metrics that vary; None where none does. Call in `svg.settings`."""
    drawn = [noise for noise in noises if noise.deviation > 0][:MOST_PANELS]
    if not drawn:
        return None
    names = [FINAL, *(each.name for each in max((n.averaging for n in drawn), key=len))]
    styles = series_styles(names, ordered=True)
    columns = min(len(drawn), 2)
    rows = -(-len(drawn) // columns)
    legend_columns, below = svg.legend_shape(names)
    plot, head, foot = 1.4, 0.5, 0.42
    height = rows * (plot + head) + foot + below
    figure = svg.new_figure(height)
    cell = svg.WIDTH / columns
    for index, noise in enumerate(drawn):
        row, column = divmod(index, columns)
        top = (row + 1) * head + row * plot
        edges = (column * cell + 0.82, height - top - plot, svg.WIDTH - (column + 1) * cell + 0.1, top)
        axes = svg.add_panel(figure, *edges)
        svg.title(axes, svg.wrap(noise.metric, 28), svg.FONT - 1)
        worths = {FINAL: 1.0} | {each.name: each.worth for each in noise.averaging if each.worth > 0}
        for name, worth in worths.items():
            draw_line(axes, list(XS), [noise.seen(n, worth) for n in XS], styles[name], 3.5, 1.4)
        if noise.over_items > 0:
            axes.axhline(noise.over_items, color=SOFT, linewidth=1, linestyle=":", zorder=1)
        axes.set_ylim(bottom=0)
        logarithmic(axes, "x")
        svg.ticks_at(axes, (3, 5, 8, 12, 20), ("3", "5", "8", "12", "20"))
        svg.few_ticks(axes, "y", 5)
    svg.legend(figure, styles, below, legend_columns)
    figure.supxlabel("seeds of each arm", fontsize=svg.FONT, color=INK, y=(0.06 + below) / height, va="bottom")
    figure.supylabel("difference that is seen", fontsize=svg.FONT, color=INK, x=0.02 / svg.WIDTH, ha="left")
    caption = (
        "The smallest difference between two uncorrelated arms that so many seeds find with a power of 80 %, at an "
        "error of 5 %. Arms that correlate over seeds by ρ see √(1 − ρ) of it. Dots: the standard error of the "
        "evaluation set, which more seeds do not lower."
    )
    table = [[noise.metric, str(n), number_format.compact(noise.seen(n))] for noise in drawn for n in XS]
    return ReportFigure.of(
        "noise", "What so many seeds see", caption, figure,
        csv="metric,seeds,difference\n" + "".join(",".join(row) + "\n" for row in table),
    )  # fmt: skip
