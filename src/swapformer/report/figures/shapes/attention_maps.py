"""The drawers of attention maps: a grid of heat maps by layer and head, and arcs between tokens where maps are few."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Arc

from swapformer.report.figures import svg
from swapformer.report.figures.figure_data import ReportFigure
from swapformer.report.figures.shapes import cells
from swapformer.report.figures.shapes.found import Found, array
from swapformer.report.figures.style import ALARM, INK, SOFT
from swapformer.report.results_csv import csv_text
from swapformer.report.statistics.estimates import FloatArray
from swapformer.results.shapes import AttentionMaps

_MAX_ARMS, _MAX_ARCS, _ARC_TOKENS = 4, 8, 24
_THRESHOLD, _ARCS = 0.2, 150
"""The least weight that has an arc, and the most arcs of a figure."""
_TOKEN = 7
"""Characters of a token that a figure shows."""
_GAP = 0.06
"""Inches between maps."""
_CELLS = 260_000
"""Cells of all maps from which they are put together at once."""


def draw_attention(found: Found[AttentionMaps]) -> Iterator[ReportFigure]:
    """For each of the first arms the grid of its maps, and the arcs where they are few."""
    arms = [arm for arm, seeds in found.shapes.items() if _cells(next(iter(seeds.values())))]
    left = f" Of {len(arms)} arms the first {_MAX_ARMS} are drawn." if len(arms) > _MAX_ARMS else ""
    for arm in arms[:_MAX_ARMS]:
        seed, shape = next(iter(found.shapes[arm].items()))
        title = f"{found.title}: {arm}" if len(arms) > 1 else found.title
        name = f"{found.slug}_{svg.slug(arm)}" if len(arms) > 1 else found.slug
        caption = f"{shape.caption} An example, of seed {seed}: heads have no identity across seeds.{left}".strip()
        table = _table(arm, seed, shape)
        yield _grid(name, title, caption, shape, table)
        few = len(shape.maps) <= _MAX_ARCS and len(shape.tokens) <= _ARC_TOKENS
        if few and shape.queries is None and len(shape.tokens) > 1:
            yield _arcs(name, title, caption, shape, table)


def _cells(shape: AttentionMaps) -> int:
    return len(shape.maps) * len(shape.tokens) * len(shape.tokens if shape.queries is None else shape.queries)


def _table(arm: str, seed: int, shape: AttentionMaps) -> str:
    """A row for each query of each map, a column for each key."""
    queries = shape.tokens if shape.queries is None else shape.queries
    rows = (
        (arm, seed, name, q, text, *row)
        for name, m in shape.maps.items()
        for q, (text, row) in enumerate(zip(queries, m, strict=True), 1)
    )
    keys = [f"key {k}: {text}" for k, text in enumerate(shape.tokens, 1)]
    return csv_text(("arm", "seed", "map", "place", "query", *keys), rows)


def _places(names: Sequence[str]) -> tuple[list[str], list[str], dict[str, tuple[int, int]]]:
    """The grid's rows, its columns, and where each map stands: by layer and head where all maps say both."""
    parts = {name: re.fullmatch(r"(.*\d)\s+(\D+\d+)", name) for name in names}
    pairs = {name: (part[1], part[2]) for name, part in parts.items() if part}
    if len(pairs) == len(names) and len(names) > 1:
        rows, columns = ([*dict.fromkeys(pair[i] for pair in pairs.values())] for i in (0, 1))
        if len(rows) * len(columns) <= 2 * len(names):
            return rows, columns, {name: (rows.index(a), columns.index(b)) for name, (a, b) in pairs.items()}
    across = min(math.ceil(math.sqrt(len(names))), 8)
    return [], [], {name: divmod(index, across) for index, name in enumerate(names)}


def _grid(name: str, title: str, caption: str, shape: AttentionMaps, table: str) -> ReportFigure:
    maps = {head: array(rows) for head, rows in shape.maps.items()}

    def draw(most: int) -> tuple[Figure, str]:
        figure = _draw_grid({head: cells.reduced(weights, most)[0] for head, weights in maps.items()}, shape)
        return figure, svg.to_svg(figure, title)

    start = max(8, int(max(map(len, (shape.tokens, shape.queries or ()))) * min(math.sqrt(_CELLS / _cells(shape)), 1)))
    text, side = cells.within_size(draw, min(start, 128))
    if (factor := math.ceil(max(map(len, (shape.tokens, shape.queries or ()))) / side)) > 1:
        caption += f" Each cell is the mean over {factor} neighbouring places a side; the CSV has all."
    caption += " Queries are rows, keys columns."
    return ReportFigure(name, title, caption, text, None, table)


def _scale(shown: Sequence[FloatArray]) -> cells.Scale:
    """Colours from 0 to nearly the largest weight: a single one of them would leave the others dark."""
    there = np.concatenate([each[np.isfinite(each)] for each in shown])
    low, top = (min(0.0, float(there.min())), float(np.quantile(there, 0.995))) if len(there) else (0.0, 1.0)
    return cells.Scale(shown, low, top if top > low else 1.0)


def _draw_grid(shown: Mapping[str, FloatArray], shape: AttentionMaps) -> Figure:
    """All maps as one picture with gaps between them: a panel for each would take seconds to draw."""
    layers, heads, places = _places(list(shown))
    down, across = (1 + max(place[i] for place in places.values()) for i in (0, 1))
    queries, keys = shape.tokens if shape.queries is None else shape.queries, shape.tokens
    ratio = len(queries) / len(keys)
    row_text = 0.075 * max(map(len, layers), default=0) + (0.1 if layers else 0.0)
    whole, side_text, width, written = _sizes(queries, keys, across, row_text)
    height = min(max(width * ratio, 0.3), 3 * width)
    scale = _scale(list(shown.values()))
    tall, broad = next(iter(shown.values())).shape
    above, own = (0.22, _GAP) if heads else (0.2, 0.2)  # without a grid's heads each map has a title
    beside = max(1, round(_GAP / width * broad))  # in cells
    between = max(1, round(own / height * tall))
    sheet = np.full((down * (tall + between) - between, across * (broad + beside) - beside), np.nan)
    for head, (row, column) in places.items():
        corner = row * (tall + between), column * (broad + beside)
        sheet[corner[0] : corner[0] + tall, corner[1] : corner[1] + broad] = shown[head]
    step, rise = width * (1 + beside / broad), height * (1 + between / tall)
    foot = (cells.text_width(keys, _TOKEN) if written else 0.12) + 0.06
    listed = [] if written else _written(keys, queries, whole)
    below = 0.38 + 0.14 * len(listed)
    total = above + down * rise - height * between / tall + foot + below
    figure = svg.new_figure(total, whole)
    left = row_text + side_text

    def say(x: float, y: float, text: str, side: str, size: float = svg.FONT - 1.5) -> None:
        figure.text(x / whole, 1 - y / total, text, ha=side, va="center", fontsize=size, color=INK)

    box = (left, above, across * step - width * beside / broad, down * rise - height * between / tall)
    axes = cells.panel(figure, *box)
    cells.paint(axes, sheet, scale, max(sheet.shape))
    _name_places(axes, keys, across, broad, beside, "x", written)
    _name_places(axes, queries, down, tall, between, "y", written)
    fits = all(len(text) * 0.065 <= step for text in heads)
    for index, text in enumerate(heads):
        say(left + index * step + width / 2, 0.11, text if fits else re.sub(r"^\D+", "", text), "center")
    if heads and not fits:
        say(left - 0.08, 0.11, re.sub(r"\s*\d+$", "", heads[0]), "right")
    for index, text in enumerate(layers):
        say(0.06, above + index * rise + height / 2, text, "left")
    for head, (row, column) in places.items() if not heads else ():
        say(left + column * step, above + row * rise - 0.09, cells.short(head, max(6, int(step / 0.065))), "left")
    for index, line in enumerate(listed):
        say(0.06, total - below + 0.1 + 0.14 * index, line, "left", svg.FONT - 2)
    cells.color_bar(figure, scale, left, "weight")
    return figure


def _sizes(
    queries: Sequence[str], keys: Sequence[str], across: int, row_text: float
) -> tuple[float, float, float, bool]:
    """Inches of the figure, of the text next to the maps and of a map, and whether its tokens can be written there.

    The narrowest figure that has room for the tokens is taken; where none has, maps are as large as fits.
    """
    side_text = max(cells.text_width(queries, _TOKEN) + 0.06, 0.25)
    full = max(len(keys) * cells.TEXT, 0.9)
    for whole in (svg.WIDTH, cells.WIDE):
        width = min((whole - row_text - side_text - 0.1) / across - _GAP, max(full, 1.9))
        if width >= full and width * len(queries) / len(keys) >= 0.9 * cells.TEXT * len(queries):
            return whole, side_text, width, True
    rooms = {whole: (whole - row_text - 0.4) / across - _GAP for whole in (svg.WIDTH, cells.WIDE)}
    whole = svg.WIDTH if rooms[svg.WIDTH] >= 0.75 else cells.WIDE
    return whole, 0.3, min(rooms[whole], 3.0), False


def _name_places(axes: Axes, tokens: Sequence[str], maps: int, size: int, gap: int, which: str, written: bool) -> None:
    """The tokens next to the first map and below the last, or the first and last place of each."""
    ends = sorted({0, len(tokens) - 1})
    chosen = list(range(len(tokens))) if written else ends
    names = [cells.short(tokens[i], _TOKEN) if written else str(i + 1) for i in chosen]
    scale = size / len(tokens)  # cells of the picture for each token
    starts = [index * (size + gap) for index in range(maps)]
    at = [start + (i + 0.5) * scale - 0.5 for start in starts for i in chosen]
    if which == "y":
        axes.set_yticks(at, names * maps)
        labels, sides = axes.get_yticklabels(), ("top", "bottom")
    else:
        axes.set_xticks(at, names * maps, rotation=90 if written else 0)
        labels, sides = axes.get_xticklabels(), ("left", "right")
    for index, text in enumerate(labels if not written and len(ends) > 1 else ()):
        side = sides[index % 2]
        text.set(**({"va": side} if which == "y" else {"ha": side}))


def _written(keys: Sequence[str], queries: Sequence[str], width: float) -> list[str]:
    """The tokens with their places, in lines, where maps are too small to bear them."""
    lines = []
    for what, tokens in (("keys", keys), ("queries", queries)) if keys != queries else (("tokens", keys),):
        said = " ".join(f"{place}:{cells.short(token, 12)}" for place, token in enumerate(tokens, 1))
        wrapped = _wrapped(f"{what} {said}", int(width / 0.068))
        lines += wrapped[:4] if len(wrapped) <= 4 else [*wrapped[:3], f"… ({len(tokens)} in all)"]
    return lines


def _wrapped(text: str, width: int) -> list[str]:
    lines = [""]
    for word in text.split(" "):
        if lines[-1] and len(lines[-1]) + 1 + len(word) > width:
            lines.append("")
        lines[-1] += f" {word}" if lines[-1] else word
    return lines


def _arcs(name: str, title: str, caption: str, shape: AttentionMaps, table: str) -> ReportFigure:
    """The tokens of each map on a line, an arc from each query to the keys whose weight reaches the threshold."""
    maps = {head: array(rows) for head, rows in shape.maps.items()}
    weights = np.sort(np.concatenate([each[np.isfinite(each)] for each in maps.values()]))[::-1]
    threshold = max(_THRESHOLD, float(weights[_ARCS - 1]) if len(weights) >= _ARCS else 0.0)
    count = len(shape.tokens)
    future = any(np.triu(np.nan_to_num(each) >= threshold, 1).any() for each in maps.values())
    across = 1 if len(maps) == 1 or count > 16 else 2
    width = (svg.WIDTH - 0.2) / across - 0.12
    reach = min(width / 2, 1.1)
    names = cells.text_width(shape.tokens, _TOKEN) + 0.12
    height = 0.24 + reach + names + (reach if future else 0.0)
    figure = svg.new_figure(math.ceil(len(maps) / across) * height + 0.06)
    total = float(figure.get_figheight())
    for index, (head, weights) in enumerate(maps.items()):
        row, column = divmod(index, across)
        left, above = 0.1 + column * (width + 0.12), row * height
        figure.text(
            (left + 0.04) / svg.WIDTH, 1 - (above + 0.1) / total, head, fontsize=svg.FONT - 1, color=INK, va="center"
        )
        axes = cells.panel(figure, left, above + 0.2, width, height - 0.24)
        unit = count / width  # of the axis to the inch
        axes.set_xlim(-0.5, count - 0.5)
        axes.set_ylim(
            -(names + (reach if future else 0.0)) * unit, (height - 0.24 - names - (reach if future else 0.0)) * unit
        )
        _draw_arcs(axes, weights, threshold, reach * unit, names * unit)
        for place, token in enumerate(shape.tokens):
            axes.text(
                place,
                -names * unit / 2,
                cells.short(token, _TOKEN),
                rotation=90,
                ha="center",
                va="center",
                fontsize=svg.FONT - 2,
                color=INK,
            )
    said = f"{caption} Arcs join a query, at their right end, to the keys whose weight is at least {threshold:.2g}."
    said += " Below the tokens, in red, queries at the left end look at what follows." if future else ""
    said += " A ring is a token that looks at itself."
    return ReportFigure.of(f"{name}_arcs", f"{title}, as arcs", said, figure, csv=table)


def _draw_arcs(axes: Axes, weights: FloatArray, threshold: float, reach: float, names: float) -> None:
    furthest = max(len(weights) - 1, 1)
    for (query, key), weight in np.ndenumerate(np.nan_to_num(weights)):
        if weight < threshold:
            continue
        line = {"linewidth": 0.4 + 2.2 * float(weight), "alpha": float(min(0.25 + 0.75 * weight, 1))}
        if query == key:
            axes.plot(
                [query],
                [0.12],
                "o",
                markersize=3 + 3 * weight,
                markerfacecolor="none",
                markeredgecolor=SOFT,
                clip_on=False,
            )
            continue
        high = 2 * reach * abs(query - key) / furthest * 0.95
        middle, base = (query + key) / 2, 0.25 if key < query else -names
        turn = (0, 180) if key < query else (180, 360)
        color = INK if key < query else ALARM
        axes.add_patch(Arc((middle, base), abs(query - key), high, theta1=turn[0], theta2=turn[1], color=color, **line))
