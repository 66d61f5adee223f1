"""Lines with bands: a mean over seeds against anything, drawn and told from the same numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from swapformer.report.figures.figure_data import Scene
from swapformer.report.figures.tooltips import Hover, interval_text
from swapformer.report.statistics.estimates import FloatArray
from swapformer.report.statistics.small_samples import t_interval

_TOLD = 400  # places of a line that a page tells, more than a screen can part; all are drawn


def fill(
    places: Mapping[str, Axes], tables: Mapping[str, pd.DataFrame], scene: Scene, hover: Hover, context: bool = True,
    every_marker: bool = False,
) -> None:  # fmt: skip
    """Every arm in its panel, from its table of places × seeds: the mean with its 95 % t band.

    Where panels are apart the baseline stands behind each of them, if `context`; without it the values are differences.
    """
    for arm, axes in places.items():
        if context and apart(places) and arm != scene.baseline and len(tables.get(scene.baseline, ())):
            _behind(axes, tables[scene.baseline], scene, hover)
        if len(tables[arm]):
            _draw(axes, tables[arm], scene, arm, every_marker, hover, signed=not context)


def _behind(axes: Axes, table: pd.DataFrame, scene: Scene, hover: Hover) -> None:
    """The baseline's mean behind another arm."""
    look, (steps, mean) = scene.looks[scene.baseline], _mean(table)
    axes.plot(steps, mean, color=look.color, linewidth=0.9, zorder=2, gid=look.key)
    _say(hover, axes, scene, scene.baseline, table, signed=False)


def _draw(
    axes: Axes, table: pd.DataFrame, scene: Scene, arm: str, every_marker: bool, hover: Hover, signed: bool
) -> None:
    """One arm's mean and band."""
    style, (steps, mean) = scene.looks[arm], _mean(table)
    low, high = _band(table.to_numpy(dtype=float))
    axes.fill_between(steps, low, high, color=style.color, alpha=0.18, linewidth=0, zorder=2, gid=style.key)
    axes.plot(
        steps, mean, color=style.color, linestyle=style.dash, linewidth=1.6, marker=style.marker, markersize=4.5,
        markevery=1 if every_marker else max(len(steps) // 6, 1), markeredgewidth=0, zorder=3, gid=style.key,
    )  # fmt: skip
    _say(hover, axes, scene, arm, table, signed)


def _say(hover: Hover, axes: Axes, scene: Scene, arm: str, table: pd.DataFrame, signed: bool) -> None:
    """Mean and band at the places of a line, for those who point at it; of very many, evenly chosen ones."""
    table = table.iloc[np.unique(np.linspace(0, len(table) - 1, min(len(table), _TOLD)).round().astype(int))]
    (steps, mean), (low, high) = _mean(table), _band(table.to_numpy(dtype=float))
    texts = [interval_text(*values, signed=signed) for values in zip(mean, low, high, strict=True)]
    hover.add(axes, arm, scene.looks[arm], steps, mean, texts)


def apart(places: Mapping[str, Axes]) -> bool:
    """Whether each arm has a panel of its own."""
    return len(set(places.values())) > 1


def _mean(table: pd.DataFrame) -> tuple[FloatArray, FloatArray]:
    return table.index.to_numpy(dtype=float), np.nanmean(table.to_numpy(dtype=float), axis=1)


def _band(values: FloatArray) -> tuple[FloatArray, FloatArray]:
    limits = np.array([t_interval(row[np.isfinite(row)]) for row in values], dtype=float)
    limits[~np.isfinite(limits).all(axis=1)] = math.nan  # a single seed has no band
    return limits[:, 0], limits[:, 1]
