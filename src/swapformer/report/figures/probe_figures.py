"""What probes saw, drawn: every probe of which the report knows how its data look; means over seeds, as everywhere."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from swapformer.report.figures import bands, curves, head_maps, panels, svg
from swapformer.report.figures.figure_data import Drawn, Scene
from swapformer.report.figures.figure_list import families
from swapformer.report.figures.style import SOFT, Style
from swapformer.report.figures.tooltips import Hover, interval_text
from swapformer.report.statistics.arm_summary import Summary, plain_summary
from swapformer.report.statistics.estimates import FloatArray
from swapformer.report.statistics.small_samples import t_interval

_BINS = 48  # of places, beyond which neighbours are put together: a line of a thousand places is noise
Found = TypeVar("Found")
Table = dict[str, pd.DataFrame]
"""Arm → places × seeds."""


def draw(scene: Scene) -> list[Drawn]:
    """A figure for each probe that left data. Call within `svg.settings`."""
    drawn = [drawer(scene) for drawer in (_heads, head_maps.draw, _by_position, _exits)]
    names = _beside(scene)
    drawn += [curves.by_length(scene, base, lengths) for base, lengths in families(names, names).items()]
    return [figure for figure in drawn if figure is not None]


def _beside(scene: Scene) -> list[str]:
    """What probes measured that is no metric of the study."""
    known = scene.records.manifest.metrics
    names = {str(name) for name in scene.records.metrics["metric"] if str(name).startswith("probe/")}
    return sorted(names - set(known))


def _heads(scene: Scene) -> Drawn | None:
    """How alike the heads of each layer look."""

    def by_layer(data: Mapping[str, Any]) -> dict[float, float]:
        means = data.get("means") or ()
        return {layer: float(mean) for layer, mean in enumerate(means, 1) if isinstance(mean, int | float)}

    caption = "Mean cosine similarity between the attention maps of two heads of a layer: 1 where all look alike."
    return _lines(
        scene, _tables(scene, "head_similarity", by_layer), "layer", "head similarity", "How alike heads look", caption
    )


def _by_position(scene: Scene) -> Drawn | None:
    """The loss at each place of the longest sequences."""
    trained = scene.records.manifest.longest_trained

    def by_place(data: Mapping[str, Any]) -> dict[float, float]:
        sets = [each for each in data.values() if isinstance(each, dict) and each.get("loss")]
        longest = max(sets, key=lambda each: len(each["loss"]), default=None)
        return {} if longest is None else pooled(longest["loss"], longest["count"])

    caption = "Mean loss of the targets at each place of the longest sequences, over finished seeds with 95 % t bands."
    tables = _tables(scene, "loss_by_position", by_place)
    if any(len(table) >= _BINS for table in tables.values()):
        caption += f" Neighbouring places are put together, at most {_BINS} groups."
    if trained:
        caption += f" The dashed line marks the longest trained length, {trained}."
    return _lines(scene, tables, "place", "loss", "Loss by position", caption, mark=trained)


def pooled(losses: Sequence[float | None], counts: Sequence[float]) -> dict[float, float]:
    """Place (from 1) → mean loss; beyond `_BINS` places, of neighbours together: every target counts once."""
    if len(losses) != len(counts):
        raise ValueError(
            f"there must be a count for each place, but there are {len(losses)} losses, {len(counts)} counts"
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


def _exits(scene: Scene) -> Drawn | None:
    """What leaving early saves and costs, threshold by threshold."""
    found: dict[str, list[list[tuple[float, float, float]]]] = {}
    for arm, _, curve in _each(scene, "early_exit", _exit_points):
        found.setdefault(arm, []).append(curve)
    arms = [arm for arm in scene.arms if any(found.get(arm, ()))]
    if not arms:
        return None
    figure, places = panels.panels(arms, scene.looks, "share of layers saved", "loss")
    hover = Hover("at threshold", "point")
    for arm in arms:
        alike = [curve for curve in found[arm] if len(curve) == len(found[arm][0])]
        _exit_curve(places[arm], arm, scene.looks[arm], np.array(alike, dtype=float), hover)
    caption = "Each mark is a threshold of confidence, mean over finished seeds, with the 95 % t interval of the loss."
    title = "What leaving early saves and costs"
    return Drawn("probe_early_exit", title, caption, svg.to_svg(figure, title), hover.plain())


def _exit_points(data: Mapping[str, Any]) -> list[tuple[float, float, float]]:
    """Threshold, share of layers saved, and loss, of the sequences of the trained length."""
    curve = data["curves"].get("") or ()
    return [(float(each["threshold"]), float(each["layers_saved"]), float(each["loss"])) for each in curve]


def _exit_curve(axes: Axes, arm: str, look: Style, values: FloatArray, hover: Hover) -> None:
    """`values`: seeds × thresholds × (threshold, layers saved, loss)."""
    (threshold, saved, loss), ends = values.mean(0).T, [t_interval(column) for column in values[:, :, 2].T]
    texts = []
    for x, mean, (low, high) in zip(saved, loss, ends, strict=True):
        if math.isfinite(low):
            axes.plot([x, x], [low, high], color=look.color, linewidth=1.4, alpha=0.6, zorder=2, gid=look.key)
        texts.append(f"loss {interval_text(mean, low, high)}, {100 * x:.0f} % of layers saved")
    axes.plot(saved, loss, look.marker, color=look.color, linestyle=look.dash, linewidth=1.5, markersize=5,
              markeredgewidth=0, zorder=3, gid=look.key)  # fmt: skip
    hover.add(axes, arm, look, saved, loss, texts, [f"{each:g}" for each in threshold])


def measured(scene: Scene) -> dict[str, dict[str, Summary]]:
    """What probes measured that the study does not report as a metric: name → arm → mean over finished seeds."""
    return {
        name: {arm: plain_summary(scene.evidence, arm, name) for arm in scene.evidence.arms} for name in _beside(scene)
    }


def _tables(scene: Scene, probe: str, of: Callable[[Mapping[str, Any]], dict[float, float]]) -> Table:
    columns: dict[str, dict[int, dict[float, float]]] = {}
    for arm, seed, values in _each(scene, probe, of):
        columns.setdefault(arm, {})[seed] = values
    return {arm: pd.DataFrame(columns[arm]).sort_index() for arm in scene.arms if arm in columns}


def _each(scene: Scene, probe: str, of: Callable[[Mapping[str, Any]], Found]) -> Iterator[tuple[str, int, Found]]:
    """Arm, seed and what is drawn of every finished trial that the probe looked at; not of data in another shape."""
    for (_, arm, seed), probes in scene.records.probes.items():
        try:
            found = of(probes[probe])
        except (KeyError, TypeError, ValueError, AttributeError):  # another probe's, or an older version's
            continue
        if found:
            yield arm, seed, found


def _lines(
    scene: Scene, tables: Table, x: str, y: str, title: str, caption: str, mark: int | None = None
) -> Drawn | None:
    if not tables:
        return None
    figure, places = panels.panels(list(tables), scene.looks, x, y)
    hover = Hover(x)
    bands.fill(places, tables, scene, hover, every_marker=max(map(len, tables.values())) <= 16)
    for axes in dict.fromkeys(places.values()):
        axes.xaxis.set_major_locator(MaxNLocator(3 if bands.apart(places) else 6, integer=True))
        if mark:
            axes.axvline(mark, color=SOFT, linewidth=1, linestyle=(0, (3, 2)), zorder=1)
    name = f"probe_{svg.slug(title)}"
    return Drawn(name, title, caption, svg.to_svg(figure, title), hover.plain())
