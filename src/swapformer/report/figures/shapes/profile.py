"""The drawer of profiles: a number by layer, a line for each moment."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from swapformer.errors import cut
from swapformer.report.figures import svg
from swapformer.report.figures.figure_data import FigureData, ReportFigure
from swapformer.report.figures.scales import logarithmic
from swapformer.report.figures.shapes.found import Found, array, merged
from swapformer.report.figures.shapes.lines import Line, Lines
from swapformer.report.figures.tooltips import Tooltips
from swapformer.report.results_csv import csv_text
from swapformer.results.shapes import Profile

_LONGEST_LABEL = 20


def draw_profile(found: Found[Profile], data: FigureData) -> ReportFigure | None:
    """Means by layer with bands: arms together at one moment, or a panel for each arm with a line for each moment."""
    shape = found.first
    labels = merged(each.layers for seeds in found.shapes.values() for each in seeds.values())
    moments = merged(each.moments for seeds in found.shapes.values() for each in seeds.values())
    name, numbers = _numbers(labels)
    place = dict(zip(labels, numbers, strict=True))
    lines = []
    for arm in found.shapes:
        alike = list(found.alike(arm, _axes).values())
        values = array([each.values for each in alike])
        for moment in moments if values.size else ():
            if moment in alike[0].moments:
                own = values[:, alike[0].moments.index(moment)]
                x = np.array([place[label] for label in alike[0].layers])
                lines.append(Line(arm, moment if len(moments) > 1 else "", x, own, [*alike[0].layers]))
    if not any(np.isfinite(line.values).any() for line in lines):
        return None
    plain = bool(name)
    shown = [cut(label, _LONGEST_LABEL) for label in labels]
    foot = 0.0 if plain else max(0.068 * max(map(len, shown)) - 0.3, 0.0)
    figure = Lines(data, lines, name, _with_unit(shape), ordered=True, foot=foot)
    tooltips = Tooltips(name or "at", "x" if plain else "point")
    figure.draw(tooltips, joined=plain or any(re.search(r"\d", label) for label in labels))
    for axes in figure.all_axes:
        if shape.log:
            logarithmic(axes, "y")
        if plain:
            axes.xaxis.set_major_locator(MaxNLocator(6 if len(figure.all_axes) == 1 else 3, integer=True))
        else:
            _name_ticks(axes, numbers, shown)
    caption = found.caption(_axes)
    rows = ((arm, at, moment, *numbers) for arm, moment, at, *numbers in figure.rows())
    text = csv_text(("arm", "layer", "moment", "mean", "low", "high", "seeds"), rows)
    return ReportFigure.of(found.slug, found.title, caption, figure.figure, tooltips, csv=text)


def _axes(shape: Profile) -> object:
    return shape.layers, shape.moments


def _numbers(labels: Sequence[str]) -> tuple[str, list[float]]:
    """The axis' name and the place of each label: their numbers where they differ in nothing else, else their order."""
    parts = [re.fullmatch(r"(\D*?)\s*(\d{1,6})", label) for label in labels]
    heads = {part[1] for part in parts if part}
    if all(parts) and len(heads) == 1:
        return heads.pop().strip() or "layer", [float(part[2]) for part in parts if part]
    return "", [float(index) for index in range(len(labels))]


def _with_unit(shape: Profile) -> str:
    return f"{shape.y} in {shape.unit}" if shape.unit else shape.y


def _name_ticks(axes: Axes, places: Sequence[float], names: Sequence[str]) -> None:
    """Labels at their places, upright, those left out that would lie over one another."""
    width = axes.get_position().width * float(axes.figure.get_figwidth())  # type: ignore[union-attr]
    every = -(-len(names) // max(int(width / 0.16), 1))
    axes.set_xlim(-0.5, len(names) - 0.5)
    axes.set_xticks(list(places)[::every], list(names)[::every], rotation=90)
    axes.tick_params(axis="x", labelsize=svg.FONT - 1.5)
