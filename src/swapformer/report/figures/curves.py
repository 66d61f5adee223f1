"""Figures of metrics as lines with bands: learning curves over steps, and a metric over evaluation length."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from swapformer.report.figures import svg
from swapformer.report.figures.figure_data import FigureData, ReportFigure
from swapformer.report.figures.panels import (
    band_words,
    draw_bands,
    draw_published,
    is_separate,
    line_panels,
    mark_trained_length,
    published_styles,
)
from swapformer.report.figures.scales import logarithmic
from swapformer.report.figures.style import ALARM, INK
from swapformer.report.figures.tooltips import Tooltips

_WARM_UP = 0.1  # the first tenth of the steps may leave the frame: it would flatten what the arms differ in
_DECADE = 10.0  # positive values that span more are drawn on a logarithmic axis, save accuracies


def learning_curve(data: FigureData, metric: str) -> ReportFigure | None:
    """`metric` during training: mean over finished seeds with its 95 % t band; diverged trials one by one, with ×."""
    history = _history(data, metric)
    if history["step"].nunique() < 2:
        return None
    tables, lost = _tables(history), history[history["status"] == "diverged"]
    seen = set(history["arm"])
    arms = [arm for arm in data.arms if arm in seen]
    figure, panels = line_panels(arms, data.styles, "training step", data.label(metric))
    tooltips = Tooltips("training step")
    draw_bands(panels, {arm: tables.get(arm, pd.DataFrame()) for arm in arms}, data, tooltips)
    _frame(next(iter(panels.values())), list(tables.values()))
    for (name, _), trial in lost.groupby(["arm", "seed"]):
        axes, style = panels[str(name)], data.styles[str(name)]
        bottom, top = axes.get_ylim()
        steps, values, key = trial["step"], trial["value"], style.key
        axes.plot(steps, values, color=style.color, linewidth=0.9, linestyle=(0, (1, 1)), gid=key)
        end = min(max(float(values.iloc[-1]), bottom), top)
        axes.plot(steps.iloc[-1:], [end], "x", color=ALARM, markersize=6, clip_on=False, zorder=5, gid=key)
    caption = f"{band_words(tables.values())}. The first tenth of the steps may leave the frame."
    if len(lost):
        caption += " Diverged trials are drawn one by one and end in × (at the frame's edge where they left it)."
    name = f"curve_{svg.slug(metric)}"
    return _report_figure(figure, panels, data, tooltips, name, f"{metric} during training", caption)


def gap_curve(data: FigureData, metric: str) -> ReportFigure | None:
    """The paired difference of `metric` to the baseline during training, with its 95 % t band."""
    tables = _tables(_history(data, metric))
    if data.baseline not in tables:
        return None
    gaps = {}
    for arm in data.arms:
        if arm == data.baseline or arm not in tables:
            continue
        seeds = data.evidence.pairs(arm, data.baseline, metric).seeds
        table = (tables[arm] - tables[data.baseline]).reindex(columns=list(seeds)).dropna(how="all")
        if len(table) > 1:
            gaps[arm] = table
    if not gaps:
        return None
    figure, panels = line_panels(list(gaps), data.styles, "training step", "difference")
    tooltips = Tooltips("training step")
    draw_bands(panels, gaps, data, tooltips, context=False)
    _frame(next(iter(panels.values())), [*gaps.values(), pd.DataFrame([0.0], index=[np.inf])])
    for axes in set(panels.values()):
        axes.axhline(0, color=INK, linewidth=1, zorder=1)
    said = band_words(gaps.values(), "Mean paired difference")
    caption = f"{said}; the first tenth of the steps may leave the frame."
    title = f"{metric} during training: difference to {data.baseline}"
    return _report_figure(figure, panels, data, tooltips, f"gap_{svg.slug(metric)}", title, caption, context=False)


def length_curve(data: FigureData, base: str, lengths: Mapping[int, str]) -> ReportFigure | None:
    """A metric that was measured at several lengths, with the value at the training length among them."""
    names, shifts = dict(lengths), "shift/" in base  # the numbers of a table of positions are not of lengths
    trained = None if shifts else data.records.manifest.longest_trained
    if trained and trained not in names and any((arm, base) in data.evidence.values for arm in data.arms):
        names = dict(sorted({**names, trained: base}.items()))
    tables = {arm: _length_table(data, arm, names) for arm in data.arms}
    tables = {arm: table for arm, table in tables.items() if len(table)}
    if len(names) < 2 or not tables:
        return None
    marks = data.published(base, {}) if data.axis is None else []
    others = published_styles(marks)
    along, what = ("positions apart", "shift") if shifts else ("evaluation length", "length")
    figure, panels = line_panels(list(tables), data.styles, along, data.label(base), others=others)
    octaves = max(names) >= 4 * min(names)
    share = data.evidence.directions.get(next(iter(lengths.values()))) == "higher"
    decades = _spans_decades(list(tables.values()), at_most_one=share)
    for axes in dict.fromkeys(panels.values()):
        if octaves:
            axes.set_xscale("log", base=2)
        if decades:
            axes.set_yscale("log")
        if trained:
            mark_trained_length(axes, trained)
    tooltips = Tooltips(what)
    draw_bands(panels, tables, data, tooltips, every_marker=True)
    for axes in dict.fromkeys(panels.values()):
        few, separate = 4 if max(names) < 1000 else 2, is_separate(panels)  # what a small panel has room for
        svg.ticks_at(axes, *_thinned(list(names), octaves, few if separate else 9), within=separate)
        if decades:
            logarithmic(axes, "y", 3 if is_separate(panels) else 6)
    caption = f"{band_words(tables.values())}."
    if trained:
        caption += (
            f" The dashed vertical line marks the longest trained length, {trained}; the point on it is evaluated as "
            "trained, over all trained lengths."
        )
    said = [draw_published(axes, marks, tooltips) for axes in dict.fromkeys(panels.values())]
    caption += said[0]
    name = f"length_{svg.slug(base)}"
    return _report_figure(figure, panels, data, tooltips, name, f"{base} against {what}", caption)


def _history(data: FigureData, metric: str) -> pd.DataFrame:
    history = data.records.histories
    return history[(history["metric"] == metric) & np.isfinite(history["value"].astype(float))]


def _tables(history: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Arm → steps × finished seeds."""
    return {
        str(arm): rows.pivot(index="step", columns="seed", values="value").astype(float)
        for arm, rows in history[history["status"] == "finished"].groupby("arm")
    }


def _length_table(data: FigureData, arm: str, names: Mapping[int, str]) -> pd.DataFrame:
    """Lengths × seeds, without those that have no value at all."""
    rows = {length: data.evidence.seed_values(arm, name) for length, name in names.items()}
    table = pd.DataFrame.from_dict(rows, orient="index")
    return table.dropna(axis="columns", how="all").dropna(axis="index", how="all")


def _report_figure(
    figure: Figure, panels: Mapping[str, Axes], data: FigureData, tooltips: Tooltips, name: str, title: str,
    caption: str, context: bool = True,
) -> ReportFigure:  # fmt: skip
    if is_separate(panels):
        caption += " One panel per arm"
        caption += f"; the thin plain line is the baseline, {data.baseline}." if context else "."
    return ReportFigure.of(name, title, caption, figure, tooltips)


def _spans_decades(tables: Sequence[pd.DataFrame], at_most_one: bool) -> bool:
    """Whether values are positive and more than a decade apart; accuracies, which are at most one, never count."""
    values = np.concatenate([table.to_numpy(dtype=float).ravel() for table in tables])
    values = values[np.isfinite(values)]
    if not len(values) or (at_most_one and values.max() <= 1):
        return False
    return bool(0 < _DECADE * values.min() < values.max())


def _thinned(lengths: Sequence[int], logarithmic: bool, most: int) -> tuple[list[float], list[str]]:
    """Ticks at the lengths themselves, those too close to the last one left out."""
    at = [math.log2(length) if logarithmic else float(length) for length in lengths]
    gap = (at[-1] - at[0]) / most
    kept: list[int] = []
    for index, position in enumerate(at):
        if not kept or position - at[kept[-1]] >= gap * 0.999:
            kept.append(index)
    return [float(lengths[i]) for i in kept], [str(lengths[i]) for i in kept]


def _frame(axes: Axes, tables: Sequence[pd.DataFrame]) -> None:
    """Vertical limits that hold every trial after the warm-up."""
    last = max((float(table.index[np.isfinite(table.index)].max()) for table in tables if len(table) > 1), default=0.0)
    later = [table[table.index >= _WARM_UP * last].to_numpy(dtype=float).ravel() for table in tables if len(table)]
    values = np.concatenate([*later, np.empty(0)])
    values = values[np.isfinite(values)]
    if len(values) and np.ptp(values) > 0:
        pad = 0.05 * float(np.ptp(values))
        axes.set_ylim(float(values.min()) - pad, float(values.max()) + pad)
