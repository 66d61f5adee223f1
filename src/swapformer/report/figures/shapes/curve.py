"""The drawer of curves: lines over a number, with fitted slopes, guides to compare them with and published points."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from swapformer.report.figures import svg
from swapformer.report.figures.figure_data import FigureData, ReportFigure
from swapformer.report.figures.panels import draw_hollow, hollow_styles, published_name
from swapformer.report.figures.scales import finite_positive, logarithmic
from swapformer.report.figures.shapes.found import Found, array, mean_over_seeds
from swapformer.report.figures.shapes.lines import Line, Lines
from swapformer.report.figures.style import SOFT
from swapformer.report.figures.tooltips import Tooltips
from swapformer.report.number_format import compact, decimals, number
from swapformer.report.results_csv import csv_text
from swapformer.report.statistics.estimates import FloatArray
from swapformer.results.shapes import Curve

_GROUPS = 48
"""Of points that are means of observations; beyond, neighbours are put together: a thousand places are noise."""


def draw_curve(found: Found[Curve], data: FigureData) -> ReportFigure | None:
    """Means over seeds with bands, on the axes that the curve asks for."""
    shape = found.first
    lines = [line for arm in found.shapes for line in _lines(arm, found)]
    if not any(np.isfinite(line.values).any() for line in lines):
        return None
    slopes = {(line.arm, line.series): _slopes(line, shape) for line in lines} if shape.fit else {}
    several = len({line.series for line in lines}) > 1
    names = {
        (arm, series): f"{series or 'all'} {_slope_text(each, brief=len(found.shapes) > 1)}"
        if several
        else f"{arm}: slope {_slope_text(each)}"
        for (arm, series), each in slopes.items()
        if np.isfinite(each).any()
    }
    hollow = hollow_styles([point.name for point in shape.published])
    figure = Lines(
        data, lines, shape.x, shape.y, names=names, others={published_name(name): each for name, each in hollow.items()}
    )
    tooltips = Tooltips(shape.x, "point" if shape.points else "x")
    figure.draw(tooltips)
    for axes in figure.all_axes:
        for point in shape.published:
            draw_hollow(axes, point.x, point.y, hollow[point.name])
        marks = [_first(found, arm).marks for (arm, _), each in figure.panels.items() if each is axes]
        for label, place in marks[0].items():
            if all(each.get(label) == place for each in marks):
                axes.axvline(place, color=SOFT, linewidth=1, linestyle=(0, (3, 2)), zorder=1)
        _scale(axes, shape, len(figure.all_axes) == 1)
        _guides(axes, shape, [line for line in lines if figure.panels[line.arm, line.series] is axes])
    caption = found.caption(_axes)
    if any(len(each.xs) > _GROUPS and each.weights for seeds in found.shapes.values() for each in seeds.values()):
        caption += f" Neighbouring points are put together, in at most {_GROUPS} groups."
    caption += _marks_said(found)
    if slopes:
        scales = "logarithms of both axes" if shape.log_x and shape.log_y else "axes as drawn"
        caption += (
            f" Slopes, after the names, are of straight lines fitted by least squares to the {scales}, mean over seeds."
        )
    if shape.guides:
        caption += " Dotted lines are guides with the slope that they name."
    if shape.published:
        caption += " Hollow marks are published numbers, not ours."
    fits = {at: mean_over_seeds(each[:, None]) for at, each in slopes.items()}
    rows = [
        *figure.rows(),
        *((arm, f"slope {series}".strip(), "", *(float(part[0]) for part in each.numbers), int(each.seeds[0]))
          for (arm, series), each in fits.items()),
        *((published_name(each.name), "", each.x, each.y, "", "", "") for each in shape.published),
    ]  # fmt: skip
    text = csv_text(("arm", "series", shape.x, shape.y, "low", "high", "seeds"), rows)
    return ReportFigure.of(found.slug, found.title, caption, figure.figure, tooltips, csv=text)


def _first(found: Found[Curve], arm: str) -> Curve:
    return next(iter(found.shapes[arm].values()))


def _marks_said(found: Found[Curve]) -> str:
    """Sentences on the vertical lines; where arms differ in one, it stands in panels of one arm only."""
    said, marks = "", {arm: _first(found, arm).marks for arm in found.shapes}
    for label in dict.fromkeys(label for each in marks.values() for label in each):
        places = {arm: each.get(label) for arm, each in marks.items()}
        first, *others = places.values()
        if first is not None and all(place == first for place in others):
            said += f" The dashed vertical line marks the {label}, {compact(first)}."
        else:
            each = ", ".join(f"{compact(place)} of {arm}" for arm, place in places.items() if place is not None)
            said += (
                f" The {label} is not the same for all arms: {each}; a dashed vertical line marks it in panels of one."
            )
    return said


def _axes(shape: Curve) -> object:
    """Equal in number is enough: point k of every seed belongs to point k of the others."""
    return len(shape.xs), shape.points, tuple(shape.series)


def _lines(arm: str, found: Found[Curve]) -> list[Line]:
    alike = list(found.alike(arm, _axes).values())
    lines = []
    for series in alike[0].series:
        pooled = [_pooled(each, series) for each in alike]
        x, values = mean_over_seeds(np.array([x for x, _ in pooled])).value, np.array([row for _, row in pooled])
        there = np.isfinite(values).any(axis=0) | (len(x) == len(alike[0].xs))  # not groups that no seed observed
        lines.append(Line(arm, series, x[there], values[:, there], alike[0].points))
    return [line for line in lines if line.values.size]


def _pooled(shape: Curve, series: str) -> tuple[FloatArray, FloatArray]:
    """x and values of a line; of a long one with weights, neighbours together, so that each observation counts once."""
    x, values = array(shape.xs), array(shape.series[series])
    if series not in shape.weights or len(x) <= _GROUPS:
        return x, values
    weight = np.where(np.isfinite(values), array(shape.weights[series]), 0.0)
    groups = np.array_split(np.arange(len(x)), _GROUPS)
    totals = np.array([weight[group].sum() for group in groups])
    sums = np.array([np.nansum(values[group] * weight[group]) for group in groups])
    return np.array([x[group].mean() for group in groups]), np.where(
        totals > 0, sums / np.maximum(totals, 1e-300), np.nan
    )


def _scale(axes: Axes, shape: Curve, large: bool) -> None:
    ticks = 6 if large else 3
    if shape.log_x:
        logarithmic(axes, "x", ticks)
        xs = array(shape.xs)
        if svg.is_power_series(xs.tolist()) and len(xs) <= 2 * ticks:
            every = -(-len(xs) // ticks)
            svg.ticks_at(axes, xs[::every].tolist(), [compact(x) for x in xs[::every]])
    else:
        whole = all(x is not None and float(x).is_integer() for x in shape.xs)
        axes.xaxis.set_major_locator(MaxNLocator(ticks, integer=whole))
    if shape.log_y:
        logarithmic(axes, "y")


def _slopes(line: Line, shape: Curve) -> FloatArray:
    """The slope of a straight line through the points of each seed, in the axes' own scales; nan for fewer than two."""
    found = []
    for values in line.values:
        there = np.isfinite(line.x) & np.isfinite(values)
        there &= finite_positive(line.x) if shape.log_x else True
        there &= finite_positive(values) if shape.log_y else True
        x = np.log10(line.x[there]) if shape.log_x else line.x[there]
        y = np.log10(values[there]) if shape.log_y else values[there]
        found.append(float(np.polyfit(x, y, 1)[0]) if len(set(x.tolist())) > 1 else math.nan)
    return np.array(found)


def _slope_text(slopes: FloatArray, brief: bool = False) -> str:
    mean = mean_over_seeds(slopes[:, None])
    value, low, high = (float(each[0]) for each in mean.numbers)
    if math.isnan(low) or brief:
        return number(value, 2)
    digits = min(decimals((high - low) / 2), 2)
    return f"{number(value, digits)} ± {number((high - low) / 2, digits)}"


def _guides(axes: Axes, shape: Curve, lines: Sequence[Line]) -> None:
    """A dotted line for each guide, through the middle of the panel's first line, with its name at an end."""
    shown = [(line.x, line.mean.value) for line in lines if np.isfinite(line.mean.value).any()]
    if not shape.guides or not shown:
        return
    (x, y), (left, right), (bottom, top) = shown[0], axes.get_xlim(), axes.get_ylim()

    def to(value: FloatArray, log: bool) -> FloatArray:
        return np.log10(np.maximum(value, 1e-300)) if log else np.asarray(value)

    def back(value: FloatArray, log: bool) -> FloatArray:
        return 10.0**value if log else value

    there = np.isfinite(y) & np.isfinite(x)
    middle = int(np.flatnonzero(there)[there.sum() // 2])
    at, level = to(x[middle : middle + 1], shape.log_x), to(y[middle : middle + 1], shape.log_y)
    first, last = to(np.array([left, right]), shape.log_x)
    across = np.linspace(float(first), float(last), 101)
    low, high = to(np.array([bottom, top]), shape.log_y)
    for index, (name, slope) in enumerate(shape.guides.items()):
        along = level + slope * (across - at)
        inside = (along >= low) & (along <= high)
        if not inside.any():
            continue
        xs, ys = back(across[inside], shape.log_x), back(along[inside], shape.log_y)
        axes.plot(xs, ys, color=SOFT, linewidth=1, linestyle=(0, (1, 1.6)), zorder=1)
        end = -1 if index % 2 == 0 else 0
        axes.annotate(
            name, (xs[end], ys[end]), xytext=(-2 if end else 2, 3), textcoords="offset points", fontsize=svg.FONT - 2,
            color=SOFT, ha="right" if end else "left", va="bottom", zorder=6,
        )  # fmt: skip
    axes.set_xlim(left, right)
    axes.set_ylim(bottom, top)
