"""Matplotlib figures without pyplot and their SVG text, which has the same bytes for the same data."""

from __future__ import annotations

import io
import math
import re
import textwrap
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator, NullLocator

from swapformer.errors import printable
from swapformer.report.figures.scales import PlainFormatter
from swapformer.report.figures.style import GRID, INK, PAPER, SOFT, Style

WIDTH = 4.9  # inches: its text stays readable when a phone shows the figure at two thirds
FONT = 9.5
LARGEST = 190_000
"""Bytes of a figure in a folder of results; it is drawn or written with less detail from there on."""
#: Stands in every SVG that this package writes, so that stale ones can be told from other people's.
MARK = "<!-- written by swapformer report -->"
_ALSO: ContextVar[tuple[tuple[str, ...], dict[str, dict[str, bytes]]]] = ContextVar("formats", default=((), {}))
_SETTINGS: Any = {
    "svg.hashsalt": "swapformer",
    "svg.fonttype": "none",
    "path.simplify_threshold": 0.2,
    "text.parse_math": False,  # an arm may have a dollar sign in its name
}


@contextmanager
def settings() -> Iterator[None]:
    """A context in which figures must be made and saved; matplotlib's settings are restored at its end."""
    with mpl.rc_context(_SETTINGS), warnings.catch_warnings():
        # Text stays text in the SVG: a letter that matplotlib's font lacks is drawn by the reader's.
        warnings.filterwarnings("ignore", r"Glyph .* missing from font", UserWarning)
        yield


def new_figure(height: float, width: float = WIDTH) -> Figure:
    """An empty figure with the page's background."""
    figure = Figure(figsize=(width, height), facecolor=PAPER)
    FigureCanvasSVG(figure)
    return figure


def add_panel(figure: Figure, left: float, bottom: float, right: float, top: float, share: Axes | None = None) -> Axes:
    """An axes whose edges lie this many inches from the figure's, with quiet spines and grid."""
    width, height = figure.get_size_inches()
    box = (left / width, bottom / height, 1 - (left + right) / width, 1 - (bottom + top) / height)
    axes = figure.add_axes(box, facecolor="none", sharex=share, sharey=share)
    for side, spine in axes.spines.items():
        spine.set_visible(side in ("left", "bottom"))
        spine.set_color(SOFT)
        spine.set_linewidth(0.8)
    axes.tick_params(colors=INK, labelsize=FONT - 1, width=0.8, length=3)
    axes.grid(True, color=GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    return axes


def label(axes: Axes, x: str = "", y: str = "") -> None:
    """Label the axes."""
    axes.set_xlabel(x, fontsize=FONT, color=INK)
    axes.set_ylabel(y, fontsize=FONT, color=INK)


def relabel(figure: Figure, x: str, y: str, lines: Mapping[str, float]) -> None:
    """Give the axes of a figure other labels, where they have any, and draw levels with their names across its panels.

    The axis of the values, which is the horizontal one where the vertical one has no label, grows where a level is
    outside it, to three times its length at most; a level beyond that is told at the edge.
    """
    for text, old in ((x, figure.get_supxlabel()), (y, figure.get_supylabel())):
        for drawn in figure.texts:  # `supxlabel` would move it back to where matplotlib has it
            if text and old and drawn.get_text() == old:
                drawn.set_text(text)
    for axes in figure.axes:
        if x and axes.get_xlabel():
            axes.set_xlabel(x)
        if y and axes.get_ylabel():
            axes.set_ylabel(y)
        if not lines:
            continue
        _draw_levels(axes, bool(axes.get_ylabel() or figure.get_supylabel()), lines)


def _draw_levels(axes: Axes, upright: bool, levels: Mapping[str, float]) -> None:
    logarithmic = (axes.get_yscale() if upright else axes.get_xscale()) == "log"

    def to(value: float) -> float:
        return value if not logarithmic else math.log10(value) if value > 0 else -math.inf

    def back(place: float) -> float:
        return 10.0**place if logarithmic else place

    low, high = map(to, axes.get_ylim() if upright else axes.get_xlim())
    span, places = high - low, {name: to(value) for name, value in levels.items()}
    near = {name: place for name, place in places.items() if low - span <= place <= high + span}
    low, high = (min([low, *(place - 0.06 * span for place in near.values())]),
                 max([high, *(place + 0.06 * span for place in near.values())]))  # fmt: skip
    (axes.set_ylim if upright else axes.set_xlim)(back(low), back(high))
    style: dict[str, Any] = {"color": SOFT, "linewidth": 0.9, "linestyle": (0, (4, 2)), "zorder": 1}
    words: dict[str, Any] = {"textcoords": "offset points", "fontsize": FONT - 2, "color": SOFT, "va": "bottom"}
    told = {place: ", ".join(name for name in near if near[name] == place) for place in near.values()}
    for end, arrow, far in (
        (low, "↓" if upright else "←", [name for name, place in places.items() if place < low]),
        (high, "↑" if upright else "→", [name for name, place in places.items() if place > high]),
    ):
        if far:
            told[end] = f"{', '.join(f'{name}: {levels[name]:g}' for name in far)} {arrow}"
    for place in near.values():
        (axes.axhline if upright else axes.axvline)(back(place), **style)
    if told and not upright and axes.yaxis_inverted():  # their names stand below the lowest row
        bottom, top = axes.get_ylim()
        axes.set_ylim(bottom + 0.4, top)
    for at, text in told.items():
        if upright:
            point, offset, side = (1.0, back(at)), (-2, -9 if at == high else 2), "right"
        else:
            before = min([at - low, *((at - other) / 2 for other in told if other < at)])
            behind = min([high - at, *((other - at) / 2 for other in told if other > at)])
            left = before > behind
            point, offset, side = (back(at), 0.0), (-2 if left else 2, 2), "right" if left else "left"
        axes.annotate(text, point, offset, _LEVEL[upright], ha=side, **words)


_LEVEL: Any = {True: ("axes fraction", "data"), False: ("data", "axes fraction")}
"""What the place of a level's name is measured in, by whether the values run upwards."""


def title(axes: Axes, text: str, size: float = FONT) -> None:
    """Put a title above a panel, at its left."""
    axes.set_title(text, fontsize=size, color=INK, loc="left", pad=4)


def wrap(name: str, width: int) -> str:
    """A long name over several lines, broken at separators where possible."""
    spaced = re.sub(r"([_/.,=+-])", "\\1\u200b", name)
    lines = textwrap.wrap(spaced.replace("\u200b", " \u200b"), width, break_long_words=True) or [name]
    return "\n".join(line.replace(" \u200b", "").replace("\u200b", "") for line in lines)


def legend(figure: Figure, styles: Mapping[str, Style], top: float, columns: int) -> None:
    """Draw a legend under the plots, its upper edge `top` inches from the bottom."""
    handles = [
        Line2D(
            [],
            [],
            color=s.color,
            ls="none" if s.hollow else s.dash,
            marker=s.marker,
            linewidth=1.6,
            label=wrap(arm, 34),
            markersize=6 if s.hollow else 4.5,
            markerfacecolor=PAPER if s.hollow else s.color,
        )
        for arm, s in styles.items()
    ]
    drawn = figure.legend(
        handles=handles, loc="upper center", bbox_to_anchor=(0.5, top / figure.get_size_inches()[1]), ncols=columns,
        frameon=False, fontsize=FONT - 1, labelcolor=INK, handlelength=3.2, columnspacing=1.4, borderaxespad=0,
    )  # fmt: skip
    for style, *artists in zip(styles.values(), drawn.legend_handles, drawn.get_texts(), strict=True):
        for artist in filter(None, artists) if style.key else ():
            artist.set_gid(style.key)


def legend_shape(arms: Sequence[str], width: float = WIDTH) -> tuple[int, float]:
    """Columns and height in inches of a legend of these arms."""
    longest = max(min(len(arm), 34) for arm in arms)
    columns = max(1, min(len(arms), int(width / (0.75 + 0.085 * longest))))
    rows = -(-len(arms) // columns)
    lines = max(wrap(arm, 34).count("\n") + 1 for arm in arms)
    return columns, rows * (0.04 + 0.17 * lines) + 0.1


def extend_below(figure: Figure, inches: float) -> None:
    """Make room under all panels of a figure; they stay as large as they are."""
    width, height = figure.get_size_inches()
    figure.set_size_inches(width, height + inches)
    for axes in figure.axes:
        left, bottom, across, tall = axes.get_position().bounds
        scale = height / (height + inches)
        axes.set_position((left, (bottom * height + inches) / (height + inches), across, tall * scale))


def ticks_at(
    axes: Axes, values: Sequence[float], names: Sequence[str], rotate: bool = False, within: bool = False
) -> None:
    """Set the ticks of the horizontal axis to these values, and to no others.

    `within`: a name at the panel's end does not reach beyond it, where another panel's begin.
    """
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xticks(list(values), list(names), rotation=30 if rotate else 0, ha="right" if rotate else "center")
    if within and values and (shown := axes.get_xticklabels()):
        place = axes.transAxes.inverted().transform(axes.transData.transform((values[-1], axes.get_ylim()[0])))[0]
        shown[-1].set_horizontalalignment("right" if place > 0.9 else "center")


def few_ticks(axes: Axes, which: str, count: int) -> None:
    """Allow at most `count` ticks on the `x` or `y` axis."""
    axis = axes.xaxis if which == "x" else axes.yaxis
    axis.set_major_locator(MaxNLocator(count))
    axis.set_major_formatter(PlainFormatter())


def is_power_series(values: Sequence[Any]) -> bool:
    """Whether sorted positive values, at least three, grow by a constant factor (1, 2, 4, 8 …)."""
    try:
        numbers = np.unique(np.asarray(values, dtype=float))
    except (TypeError, ValueError):
        return False
    if len(numbers) < 3 or numbers[0] <= 0 or not np.isfinite(numbers).all():
        return False
    ratios = numbers[1:] / numbers[:-1]
    return bool(np.allclose(ratios, ratios[0], rtol=1e-3))


@contextmanager
def also_as(formats: Sequence[str]) -> Iterator[dict[str, dict[str, bytes]]]:
    """Within it each figure is drawn in these formats of matplotlib too: SVG text → format → bytes.

    Text of a PDF is set in embedded fonts, and a PNG has 300 dots to the inch.
    """
    drawn: dict[str, dict[str, bytes]] = {}
    token = _ALSO.set((tuple(formats), drawn))
    try:
        yield drawn
    finally:
        _ALSO.reset(token)


def _draw_also(figure: Figure, text: str) -> None:
    """The figure in the formats that were asked for in addition to SVG."""
    formats, drawn = _ALSO.get()
    for kind in formats:
        buffer = io.BytesIO()
        with mpl.rc_context({"pdf.fonttype": 42}):
            stable = {"CreationDate": None} if kind == "pdf" else None
            figure.savefig(buffer, format=kind, dpi=300, metadata=stable)
        drawn.setdefault(text, {})[kind] = buffer.getvalue()


def to_svg(figure: Figure, description: str) -> str:
    """The figure as SVG text with a description for those who cannot see it; no date, fixed ids."""
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None, "Title": description})
    svg = re.sub(
        r'<g id="(arm\d+)">', r'<g class="\1">', printable(buffer.getvalue())
    )  # one arm's marks are many groups
    text = _compact(svg.replace("<svg ", f"{MARK}\n<svg ", 1))
    _draw_also(figure, text)
    return text


def _compact(svg: str) -> str:
    """A figure that is too large for a folder of results with places to a tenth of a point, and without indentation."""
    if len(svg.encode()) <= LARGEST:
        return svg
    head, pictures = svg[: svg.index("<svg ")], re.split(r'("data:image[^"]*")', svg[svg.index("<svg ") :])
    for index in range(0, len(pictures), 2):
        plain = re.sub(r"\n\s*", "\n", pictures[index])  # what stands between tags are words and numbers to be read
        pictures[index] = re.sub(r"<[^>]*>", lambda tag: re.sub(r"(\.\d)\d{2,}", r"\1", tag[0]), plain)
    return head + "".join(pictures)


def inline(svg: str, prefix: str, variables: Mapping[str, tuple[str, str, str]], description: str) -> str:
    """The SVG as a page embeds it: without prolog, with its own ids, in colours that follow the page's theme."""
    body = svg[svg.index("<svg ") :]
    # The title would be a tooltip over the whole figure, and the style would reach the whole page.
    body = re.sub(r"<(metadata|title|style)\b.*?</\1>", "", body, flags=re.DOTALL)
    body = re.sub(r'\b(id="|href="#|url\(#)', lambda match: match.group(1) + prefix + "-", body)
    colors = {color: f"var(--{name})" for color, (name, *_) in variables.items()}
    body = re.sub(r"#[0-9a-f]{6}\b", lambda match: colors.get(match[0], match[0]), body)
    for size in ("width", "height"):
        body = re.sub(rf'^<svg ([^>]*?)\b{size}="[^"]*" ?', r"<svg \1", body)
    label = description.replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;").replace(">", "&gt;")
    return body.replace("<svg ", f'<svg role="img" aria-label="{label}" ', 1)


def slug(text: str) -> str:
    """A file name from a metric's name."""
    return re.sub(r"[^A-Za-z0-9]+", "_", text).strip("_").lower() or "figure"
