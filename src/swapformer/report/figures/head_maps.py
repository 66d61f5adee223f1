"""Heat maps of the probe `head_similarity`: how alike the heads of each layer are, for one seed of every arm."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from swapformer.report.figures import svg
from swapformer.report.figures.figure_data import FigureData, ReportFigure
from swapformer.report.figures.style import INK
from swapformer.report.statistics.estimates import FloatArray

_MOST_LAYERS, _MOST_CELLS = 4, 4000
_COLORS = "cividis"  # reads without colour vision, and shares no colour with the arms
_SIDE, _GAP = 0.78, 0.12  # inches


def head_map_plot(data: FigureData) -> ReportFigure | None:
    """A row for each arm, a column for each layer; None without data, or with more cells than can be told apart.

    Heads have no identity across seeds, so a mean over seeds would mean nothing: the first finished seed is shown.
    """
    found: dict[str, tuple[int, dict[int, FloatArray]]] = {}
    for (_, arm, seed), probes in sorted(data.records.probes.items()):
        layers = _layers(probes.get("head_similarity"))
        if layers and arm not in found:
            found[arm] = seed, layers
    arms = [arm for arm in data.arms if arm in found]
    columns = sorted({layer for arm in arms for layer in found[arm][1]})
    if len(columns) > _MOST_LAYERS:
        columns = [columns[i] for i in np.linspace(0, len(columns) - 1, _MOST_LAYERS).round().astype(int)]
    cells = sum(found[arm][1][layer].size for arm in arms for layer in columns if layer in found[arm][1])
    if not columns or cells > _MOST_CELLS:
        return None
    figure = _figure(arms, columns, found)
    title = "Which heads look alike"
    seeds = sorted({found[arm][0] for arm in arms})
    caption = (
        f"Cosine similarity between the attention maps of every two heads of a layer, of seed {seeds[0]}"
        + (" (or the arm's first)" if len(seeds) > 1 else "")
        + ". Heads have no names across seeds, so these are an example; the means by layer are over all seeds."
    )
    return ReportFigure.of("probe_heads", title, caption, figure)


def _layers(data: Any) -> dict[int, FloatArray]:
    """The square matrices of layers with at least two heads, by layer from 1."""
    raw = data.get("layers") if isinstance(data, Mapping) else None
    found = {}
    for layer, rows in enumerate(raw if isinstance(raw, list) else (), 1):
        try:
            matrix = np.asarray(rows, dtype=float)
        except (TypeError, ValueError):
            continue
        if matrix.ndim == 2 and matrix.shape[0] == matrix.shape[1] > 1 and np.isfinite(matrix).all():
            found[layer] = matrix
    return found


def _figure(
    arms: Sequence[str], columns: Sequence[int], found: Mapping[str, tuple[int, Mapping[int, FloatArray]]]
) -> Figure:
    names = [svg.wrap(arm, 16) for arm in arms]
    left, top, foot = 1.35, 0.3, 0.5
    height = top + foot + len(arms) * (_SIDE + _GAP)
    figure = svg.new_figure(height)
    for row, (arm, name) in enumerate(zip(arms, names, strict=True)):
        above = top + row * (_SIDE + _GAP)
        middle = 1 - (above + _SIDE / 2) / height
        figure.text((left - 0.1) / svg.WIDTH, middle, name, ha="right", va="center", fontsize=svg.FONT, color=INK)
        for column, layer in enumerate(columns):
            if layer not in found[arm][1]:
                continue
            start = left + column * (_SIDE + _GAP)
            axes = _panel(figure, start, above, _SIDE, _SIDE)
            _cells(axes, found[arm][1][layer][::-1])
    for column, layer in enumerate(columns):
        x = (left + column * (_SIDE + _GAP) + _SIDE / 2) / svg.WIDTH
        figure.text(x, 1 - 0.2 / height, f"layer {layer}", ha="center", fontsize=svg.FONT - 1, color=INK)
    _cells(_panel(figure, left, height - 0.32, 1.2, 0.1), np.linspace(0, 1, 24)[None])
    for x, text in ((left - 0.12, "0"), (left + 1.32, "1")):
        figure.text(x / svg.WIDTH, 0.24 / height, text, ha="center", fontsize=svg.FONT - 1, color=INK)
    return figure


def _panel(figure: Figure, left: float, above: float, width: float, height: float) -> Axes:
    """A frame without axes, so many inches from the left and from above."""
    whole = figure.get_size_inches()[1]
    box = (left / svg.WIDTH, 1 - (above + height) / whole, width / svg.WIDTH, height / whole)
    axes = figure.add_axes(box, facecolor="none")
    axes.set_axis_off()
    return axes


def _cells(axes: Axes, values: FloatArray) -> None:
    axes.pcolormesh(values, cmap=_COLORS, vmin=0, vmax=1, edgecolors="face", linewidth=0.2)
