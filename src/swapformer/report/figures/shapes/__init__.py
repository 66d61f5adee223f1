"""Figures of what probes found: one drawer for each shape, and none for any probe."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from swapformer.report.figures.figure_data import FigureData, ReportFigure
from swapformer.report.figures.shapes.attention_maps import draw_attention
from swapformer.report.figures.shapes.curve import draw_curve
from swapformer.report.figures.shapes.found import Found, found_shapes
from swapformer.report.figures.shapes.histogram import draw_histogram
from swapformer.report.figures.shapes.matrix import draw_matrices, sheet_of
from swapformer.report.figures.shapes.profile import draw_profile
from swapformer.report.figures.shapes.table import draw_table
from swapformer.results.shapes import AttentionMaps, Curve, Histogram, Matrix, Profile, Table


def draw_shapes(data: FigureData) -> Iterator[ReportFigure | None]:
    """A figure for every shape that the probes of a condition found. Call within `svg.settings`."""
    sheets: dict[tuple[str, str], dict[str, Found[Matrix]]] = {}
    everything: list[Found[Any]] = [*found_shapes(data)]
    for found in everything:
        if isinstance(found.first, Matrix):
            sheet, part = sheet_of(found.name)
            sheets.setdefault((found.probe, sheet), {})[part] = found
    for found in everything:
        match found.first:
            case Profile():
                yield draw_profile(found, data)
            case Curve():
                yield draw_curve(found, data)
            case Histogram():
                yield draw_histogram(found, data)
            case AttentionMaps():
                yield from draw_attention(found)
            case Table():
                yield draw_table(found, data)
            case Matrix():
                yield (
                    draw_matrices(parts, data)
                    if (parts := sheets.pop((found.probe, sheet_of(found.name)[0]), None))
                    else None
                )
