"""Figures of what probes measured: one for every probe whose data the report knows, as means over seeds."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from swapformer.report.figures import svg
from swapformer.report.figures.curves import length_curve
from swapformer.report.figures.figure_data import FigureData, ReportFigure, length_families
from swapformer.report.figures.panels import draw_bands, draw_line, is_separate, line_panels, mark_trained_length
from swapformer.report.figures.style import INK, Style
from swapformer.report.figures.tooltips import Tooltips
from swapformer.report.number_format import interval_text
from swapformer.report.statistics.arm_summary import Summary, plain_summary
from swapformer.report.statistics.estimates import FloatArray
from swapformer.report.statistics.small_samples import t_interval

_MAX_LAYERS, _MAX_CELLS = 4, 4000
_COLORS = "cividis"  # reads without colour vision, and shares no colour with the arms
_SIDE, _GAP = 0.78, 0.12  # inches
_BINS = 48  # of positions, beyond which neighbours are put together: a line of a thousand positions is noise
Found = TypeVar("Found")
Table = dict[str, pd.DataFrame]
"""Arm → x values × seeds."""


def probe_plots(data: FigureData) -> list[ReportFigure | None]:
    """A figure for each probe that left data. Call within `svg.settings`."""
    names = _probe_metrics(data)
    families = length_families(names, names)
    return [
        *(draw(data) for draw in (_head_plot, _head_map_plot, _position_plot, _exit_plot)),
        *(length_curve(data, base, lengths) for base, lengths in families.items()),
    ]


def probe_summaries(data: FigureData) -> dict[str, dict[str, Summary]]:
    """Means over finished seeds of what probes measured beside the study's metrics: name → arm → summary."""
    return {
        name: {arm: plain_summary(data.evidence, arm, name) for arm in data.evidence.arms}
        for name in _probe_metrics(data)
    }


def _probe_metrics(data: FigureData) -> list[str]:
    """The numbers that probes measured beside the study's metrics."""
    names = {str(name) for name in data.records.metrics["metric"] if str(name).startswith("probe/")}
    return sorted(names - set(data.records.manifest.metrics))


def _head_plot(data: FigureData) -> ReportFigure | None:
    """How alike the heads of each layer look."""

    def by_layer(probe: Mapping[str, Any]) -> dict[float, float]:
        means = probe.get("means") or ()
        return {layer: float(mean) for layer, mean in enumerate(means, 1) if isinstance(mean, int | float)}

    caption = "Mean cosine similarity between the attention maps of two heads of a layer: 1 where all look alike."
    tables = _tables(data, "head_similarity", by_layer)
    return _line_plot(data, tables, "layer", "head similarity", "How alike heads look", caption)


def _head_map_plot(data: FigureData) -> ReportFigure | None:
    """A row for each arm, a column for each layer; None without data, or with more cells than can be told apart.

    Heads have no identity across seeds, so a mean over seeds would mean nothing: the first finished seed is shown.
    """
    found: dict[str, tuple[int, dict[int, FloatArray]]] = {}
    for (_, arm, seed), probes in sorted(data.records.probes.items()):
        layers = _head_matrices(probes.get("head_similarity"))
        if layers and arm not in found:
            found[arm] = seed, layers
    arms = [arm for arm in data.arms if arm in found]
    columns = sorted({layer for arm in arms for layer in found[arm][1]})
    if len(columns) > _MAX_LAYERS:
        columns = [columns[i] for i in np.linspace(0, len(columns) - 1, _MAX_LAYERS).round().astype(int)]
    cells = sum(found[arm][1][layer].size for arm in arms for layer in columns if layer in found[arm][1])
    if not columns or cells > _MAX_CELLS:
        return None
    figure = _draw_head_maps(arms, columns, found)
    title = "Which heads look alike"
    seeds = sorted({found[arm][0] for arm in arms})
    caption = (
        f"Cosine similarity between the attention maps of every two heads of a layer, of seed {seeds[0]}"
        + (" (or the arm's first)" if len(seeds) > 1 else "")
        + ". Heads have no names across seeds, so these are an example; the means by layer are over all seeds."
    )
    return ReportFigure.of("probe_heads", title, caption, figure)


def _head_matrices(data: Any) -> dict[int, FloatArray]:
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


def _draw_head_maps(
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
            if layer in found[arm][1]:
                start = left + column * (_SIDE + _GAP)
                _draw_cells(figure, start, above, _SIDE, _SIDE, found[arm][1][layer][::-1])
    for column, layer in enumerate(columns):
        x = (left + column * (_SIDE + _GAP) + _SIDE / 2) / svg.WIDTH
        figure.text(x, 1 - 0.2 / height, f"layer {layer}", ha="center", fontsize=svg.FONT - 1, color=INK)
    _draw_cells(figure, left, height - 0.32, 1.2, 0.1, np.linspace(0, 1, 24)[None])
    for x, text in ((left - 0.12, "0"), (left + 1.32, "1")):
        figure.text(x / svg.WIDTH, 0.24 / height, text, ha="center", fontsize=svg.FONT - 1, color=INK)
    return figure


def _draw_cells(figure: Figure, left: float, above: float, width: float, height: float, values: FloatArray) -> None:
    """Draw values in [0, 1] as a heat map without axes, so many inches from the left and from above."""
    whole = figure.get_size_inches()[1]
    box = (left / svg.WIDTH, 1 - (above + height) / whole, width / svg.WIDTH, height / whole)
    axes = figure.add_axes(box, facecolor="none")
    axes.set_axis_off()
    axes.pcolormesh(values, cmap=_COLORS, vmin=0, vmax=1, edgecolors="face", linewidth=0.2)


def _position_plot(data: FigureData) -> ReportFigure | None:
    """The loss at each position of the longest sequences."""
    trained = data.records.manifest.longest_trained

    def by_position(probe: Mapping[str, Any]) -> dict[float, float]:
        sets = [each for each in probe.values() if isinstance(each, dict) and each.get("loss")]
        longest = max(sets, key=lambda each: len(each["loss"]), default=None)
        return {} if longest is None else pool_positions(longest["loss"], longest["count"])

    caption = "Mean loss of the targets at each place of the longest sequences, over finished seeds with 95 % t bands."
    tables = _tables(data, "loss_by_position", by_position)
    if any(len(table) >= _BINS for table in tables.values()):
        caption += f" Neighbouring places are put together, at most {_BINS} groups."
    if trained:
        caption += f" The dashed line marks the longest trained length, {trained}."
    return _line_plot(data, tables, "place", "loss", "Loss by position", caption, trained)


def pool_positions(losses: Sequence[float | None], counts: Sequence[float]) -> dict[float, float]:
    """Position (from 1) → mean loss; beyond `_BINS` positions, of neighbours together: every target counts once."""
    if len(losses) != len(counts):
        raise ValueError(
            f"there must be a count for each position, but there are {len(losses)} losses, {len(counts)} counts"
        )
    loss = np.array([math.nan if value is None else value for value in losses], dtype=float)
    weight = np.where(np.isfinite(loss), np.asarray(counts, dtype=float), 0.0)
    groups = np.array_split(np.arange(len(loss)), min(len(loss), _BINS))
    found = {}
    for group in groups:
        if total := float(weight[group].sum()):
            kept = group[weight[group] > 0]
            found[float(group.mean()) + 1] = float((loss[kept] * weight[kept]).sum()) / total
    return found


def _line_plot(
    data: FigureData, tables: Table, x: str, y: str, title: str, caption: str, trained: int | None = None
) -> ReportFigure | None:
    if not tables:
        return None
    figure, panels = line_panels(list(tables), data.styles, x, y)
    tooltips = Tooltips(x)
    draw_bands(panels, tables, data, tooltips, every_marker=max(map(len, tables.values())) <= 16)
    for axes in dict.fromkeys(panels.values()):
        axes.xaxis.set_major_locator(MaxNLocator(3 if is_separate(panels) else 6, integer=True))
        if trained:
            mark_trained_length(axes, trained)
    return ReportFigure.of(f"probe_{svg.slug(title)}", title, caption, figure, tooltips)


def _exit_plot(data: FigureData) -> ReportFigure | None:
    """What leaving early saves and costs, threshold by threshold."""
    found: dict[str, list[list[tuple[float, float, float]]]] = {}
    for arm, _, curve in _each(data, "early_exit", _exit_points):
        found.setdefault(arm, []).append(curve)
    arms = [arm for arm in data.arms if any(found.get(arm, ()))]
    if not arms:
        return None
    figure, panels = line_panels(arms, data.styles, "share of layers saved", "loss")
    tooltips = Tooltips("at threshold", "point")
    for arm in arms:
        alike = [curve for curve in found[arm] if len(curve) == len(found[arm][0])]
        _draw_exits(panels[arm], arm, data.styles[arm], np.array(alike, dtype=float), tooltips)
    caption = "Each mark is a threshold of confidence, mean over finished seeds, with the 95 % t interval of the loss."
    return ReportFigure.of("probe_early_exit", "What leaving early saves and costs", caption, figure, tooltips)


def _exit_points(probe: Mapping[str, Any]) -> list[tuple[float, float, float]]:
    """Threshold, share of layers saved, and loss, of the sequences of the trained length."""
    curve = probe["curves"].get("") or ()
    return [(float(each["threshold"]), float(each["layers_saved"]), float(each["loss"])) for each in curve]


def _draw_exits(axes: Axes, arm: str, style: Style, values: FloatArray, tooltips: Tooltips) -> None:
    """`values`: seeds × thresholds × (threshold, layers saved, loss)."""
    (threshold, saved, loss), ends = values.mean(0).T, [t_interval(column) for column in values[:, :, 2].T]
    texts = []
    for x, mean, (low, high) in zip(saved, loss, ends, strict=True):
        if math.isfinite(low):
            axes.plot([x, x], [low, high], color=style.color, linewidth=1.4, alpha=0.6, zorder=2, gid=style.key)
        texts.append(f"loss {interval_text(mean, low, high)}, {100 * x:.0f} % of layers saved")
    draw_line(axes, saved, loss, style, 5, 1.5)
    tooltips.add(axes, arm, style, saved, loss, texts, [f"{each:g}" for each in threshold])


def _tables(data: FigureData, probe: str, of: Callable[[Mapping[str, Any]], dict[float, float]]) -> Table:
    columns: dict[str, dict[int, dict[float, float]]] = {}
    for arm, seed, values in _each(data, probe, of):
        columns.setdefault(arm, {})[seed] = values
    return {arm: pd.DataFrame(columns[arm]).sort_index() for arm in data.arms if arm in columns}


def _each(data: FigureData, probe: str, of: Callable[[Mapping[str, Any]], Found]) -> Iterator[tuple[str, int, Found]]:
    """Arm, seed and what is drawn of every finished trial that the probe looked at; not of data in another shape."""
    for (_, arm, seed), probes in data.records.probes.items():
        try:
            found = of(probes[probe])
        except (KeyError, TypeError, ValueError, AttributeError):  # another probe's, or an older version's
            continue
        if found:
            yield arm, seed, found
