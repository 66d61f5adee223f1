"""The drawer of histograms: outlines of counts between edges."""

from __future__ import annotations

import numpy as np

from swapformer.report.figures import svg
from swapformer.report.figures.figure_data import FigureData, ReportFigure
from swapformer.report.figures.scales import logarithmic
from swapformer.report.figures.shapes.found import Found, array
from swapformer.report.figures.shapes.lines import Line, Lines
from swapformer.report.figures.tooltips import Tooltips
from swapformer.report.results_csv import csv_text
from swapformer.results.shapes import Histogram


def draw_histogram(found: Found[Histogram], data: FigureData) -> ReportFigure | None:
    """Mean counts over seeds with bands: arms together for one series, or a panel for each arm with all series."""
    shape = found.first
    lines = []
    for arm in found.shapes:
        alike = list(found.alike(arm, _axes).values())
        edges = array(alike[0].edges)
        for series in alike[0].counts:
            lines.append(Line(arm, series, edges, array([each.counts[series] for each in alike])))
    lines = [line for line in lines if np.isfinite(line.values).any()]
    if not lines:
        return None
    shares = all(np.nanmax(line.values) <= 1 for line in lines)
    figure = Lines(data, lines, shape.x, "share" if shares else "count")
    tooltips = Tooltips(shape.x, "point")
    figure.draw(tooltips, steps=True)
    for axes in figure.all_axes:
        axes.set_ylim(bottom=0)
        svg.few_ticks(axes, "x", 6 if len(figure.all_axes) == 1 else 3)
        if svg.is_power_series(shape.edges):
            logarithmic(axes, "x", 6 if len(figure.all_axes) == 1 else 3)
    rows = [
        (line.arm, line.series, line.x[bin], line.x[bin + 1], *numbers)
        for line in lines
        for mean in [line.mean]
        for bin, numbers in enumerate(zip(mean.value, mean.low, mean.high, mean.seeds, strict=True))
    ]
    text = csv_text(("arm", "series", "from", "to", "count", "low", "high", "seeds"), rows)
    return ReportFigure.of(found.slug, found.title, found.caption(_axes), figure.figure, tooltips, csv=text)


def _axes(shape: Histogram) -> object:
    return shape.edges, tuple(shape.counts)
