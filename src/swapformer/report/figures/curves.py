"""Lines with bands: learning curves over steps, and a metric over evaluation length."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from swapformer.report.figures import bands, panels, svg
from swapformer.report.figures.figure_data import Drawn, Scene
from swapformer.report.figures.style import ALARM, INK, SOFT
from swapformer.report.figures.tooltips import Hover

_WARM_UP = 0.1  # the first tenth of the steps may leave the frame: it would flatten what the arms differ in


def learning(scene: Scene, metric: str) -> Drawn | None:
    """`metric` during training: mean over finished seeds with its 95 % t band; diverged trials one by one, with ×."""
    history = _history(scene, metric)
    if history["step"].nunique() < 2:
        return None
    tables = _tables(history[history["status"] == "finished"])
    lost = history[history["status"] == "diverged"]
    seen = set(history["arm"])
    arms = [arm for arm in scene.arms if arm in seen]
    figure, places = panels.panels(arms, scene.looks, "training step", scene.better(metric))
    hover = Hover("training step")
    bands.fill(places, {arm: tables.get(arm, pd.DataFrame()) for arm in arms}, scene, hover)
    _frame(next(iter(places.values())), list(tables.values()))
    for (name, _), trial in lost.groupby(["arm", "seed"]):
        arm = str(name)
        axes, top = places[arm], places[arm].get_ylim()[1]
        look = scene.looks[arm]
        axes.plot(trial["step"], trial["value"], color=look.color, linewidth=0.9, linestyle=(0, (1, 1)), gid=look.key)
        end = min(float(trial["value"].iloc[-1]), top)
        axes.plot(trial["step"].iloc[-1:], [end], "x", color=ALARM, markersize=6, clip_on=False, zorder=5, gid=look.key)
    caption = "Mean over finished seeds with its 95 % t band. The first tenth of the steps may leave the frame."
    if len(lost):
        caption += " Diverged trials are drawn one by one and end in × (at the frame's edge where they left it)."
    return _drawn(figure, places, scene, hover, f"curve_{svg.slug(metric)}", f"{metric} during training", caption)


def gap(scene: Scene, metric: str) -> Drawn | None:
    """The paired difference of `metric` to the baseline during training, with its 95 % t band."""
    history = _history(scene, metric)
    tables = _tables(history[history["status"] == "finished"])
    if scene.baseline not in tables:
        return None
    gaps = {}
    for arm in scene.arms:
        if arm == scene.baseline or arm not in tables:
            continue
        seeds = scene.evidence.pairs(arm, scene.baseline, metric).seeds
        table = (tables[arm] - tables[scene.baseline]).reindex(columns=list(seeds)).dropna(how="all")
        if len(table) > 1:
            gaps[arm] = table
    if not gaps:
        return None
    figure, places = panels.panels(list(gaps), scene.looks, "training step", "difference")
    hover = Hover("training step")
    bands.fill(places, gaps, scene, hover, context=False)
    _frame(next(iter(places.values())), [*gaps.values(), pd.DataFrame([0.0], index=[np.inf])])
    for axes in set(places.values()):
        axes.axhline(0, color=INK, linewidth=1, zorder=1)
    caption = "Mean paired difference with its 95 % t band; the first tenth of the steps may leave the frame."
    title = f"{metric} during training: difference to {scene.baseline}"
    return _drawn(figure, places, scene, hover, f"gap_{svg.slug(metric)}", title, caption, context=False)


def by_length(scene: Scene, base: str, lengths: Mapping[int, str]) -> Drawn | None:
    """A metric that was measured at several lengths, with the value at the training length among them."""
    names = dict(lengths)
    trained = scene.records.manifest.longest_trained
    if trained and trained not in names and any((arm, base) in scene.evidence.values for arm in scene.arms):
        names = dict(sorted({**names, trained: base}.items()))
    tables = {arm: _length_table(scene, arm, names) for arm in scene.arms}
    tables = {arm: table for arm, table in tables.items() if len(table)}
    if len(names) < 2 or not tables:
        return None
    figure, places = panels.panels(list(tables), scene.looks, "evaluation length", scene.better(base))
    logarithmic = max(names) >= 4 * min(names)
    for axes in dict.fromkeys(places.values()):
        if logarithmic:
            axes.set_xscale("log", base=2)
        if trained:
            axes.axvline(trained, color=SOFT, linewidth=1, linestyle=(0, (3, 2)), zorder=1)
    hover = Hover("length")
    bands.fill(places, tables, scene, hover, every_marker=True)
    for axes in dict.fromkeys(places.values()):
        svg.ticks_at(axes, *_thinned(list(names), logarithmic, 4 if bands.apart(places) else 9))
    caption = "Mean over finished seeds with its 95 % t band."
    if trained:
        caption += f" The dashed vertical line marks the longest trained length, {trained}."
    return _drawn(figure, places, scene, hover, f"length_{svg.slug(base)}", f"{base} against length", caption)


def _history(scene: Scene, metric: str) -> pd.DataFrame:
    history = scene.records.histories
    return history[(history["metric"] == metric) & np.isfinite(history["value"].astype(float))]


def _tables(history: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Arm → steps × seeds."""
    return {
        str(arm): rows.pivot(index="step", columns="seed", values="value").astype(float)
        for arm, rows in history.groupby("arm")
    }


def _drawn(
    figure: Figure, places: Mapping[str, Axes], scene: Scene, hover: Hover, name: str, title: str, caption: str,
    context: bool = True,
) -> Drawn:  # fmt: skip
    if bands.apart(places):
        caption += " One panel per arm"
        caption += f"; the thin plain line is the baseline, {scene.baseline}." if context else "."
    return Drawn(name, title, caption, svg.to_svg(figure, title), hover.plain())


def _length_table(scene: Scene, arm: str, names: Mapping[int, str]) -> pd.DataFrame:
    nothing = np.full(len(scene.evidence.seeds), math.nan)
    rows = {length: scene.evidence.values.get((arm, name), nothing) for length, name in names.items()}
    table = pd.DataFrame.from_dict(rows, orient="index")
    return table.dropna(axis="columns", how="all").dropna(axis="index", how="all")


def _thinned(lengths: Sequence[int], logarithmic: bool, most: int) -> tuple[list[float], list[str]]:
    """Ticks at the lengths themselves, those too close to the last one left out."""
    places = [math.log2(length) if logarithmic else float(length) for length in lengths]
    gap = (places[-1] - places[0]) / most
    kept: list[int] = []
    for index, place in enumerate(places):
        if not kept or place - places[kept[-1]] >= gap * 0.999:
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
