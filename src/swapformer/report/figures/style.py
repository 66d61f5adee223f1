"""Styles of arms in figures: colour, marker and dashes, each enough on its own, for light and dark pages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from matplotlib.markers import MarkerStyle
from matplotlib.path import Path

Dash = Literal["-"] | tuple[float, tuple[float, ...]]

INK, SOFT, GRID, PAPER, ALARM = "#1f2328", "#646c76", "#e4e7eb", "#fffffe", "#b3261e"
#: The colours of the page's theme: the colour in an SVG file, the CSS variable, its value on dark pages.
THEME = (
    (INK, "ink", "#e6e8eb"),
    (SOFT, "soft", "#9aa4af"),
    (GRID, "grid", "#333a42"),
    (PAPER, "card", "#1a1e23"),
    (ALARM, "alarm", "#ff8a80"),
)
#: Okabe and Ito's palette without its yellow (invisible on white), each with a lighter twin for dark pages.
_PALETTE = (
    ("#0072b2", "#56aee8"),
    ("#d55e00", "#ff8b3d"),
    ("#009e73", "#2fcf9f"),
    ("#a8478a", "#e08cc6"),
    ("#c98a00", "#f0b93a"),
    ("#cf3759", "#ff8a9f"),
    ("#7a5c3e", "#c7a27c"),
)
#: viridis between its dark and its light end, for arms that are ordered along an axis; for dark pages a lighter range.
_RAMP_LIGHT = ("#440154", "#472d7b", "#3b528b", "#2c728e", "#21918c", "#28ae80", "#5ec962")
_RAMP_DARK = ("#8d7bd6", "#6f8fe0", "#4aa6dd", "#35bcc0", "#3fd09a", "#86e06a", "#e3ea4f")
_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">", "p", "h", "*")
_DASHES: tuple[Dash, ...] = ("-", (0, (5, 1.5)), (0, (1.5, 1.2)), (0, (6, 1.5, 1.5, 1.5)))
_WIDTH, _HEIGHT, _MARKER = 30, 12, 7
_LETTERS = {Path.MOVETO: "M", Path.LINETO: "L", Path.CURVE3: "Q", Path.CURVE4: "C"}


@dataclass(frozen=True)
class Style:
    """The style of one arm; `dark`: its colour on dark pages; `key`: its name in figures, so that pages can hide it.

    `hollow`: it is a mark without a line, as of published numbers.
    """

    color: str
    dark: str
    marker: str
    dash: Dash
    key: str
    hollow: bool = False


def arm_styles(arms: Sequence[str], baseline: str, ordered: bool, palette: Sequence[str] = ()) -> dict[str, Style]:
    """A style for every arm: the baseline in ink, others from a palette, or along a ramp where they are `ordered`.

    With `palette`, the arms of several studies, each arm looks the same in all of them: the first of it is in ink.
    """
    if not ordered and set(arms) <= set(palette):
        found = arm_styles(palette, palette[0], ordered=False)
        order = dict.fromkeys([baseline, *arms])
        return {arm: replace(found[arm], key=f"arm{index}") for index, arm in enumerate(order)}
    others = [arm for arm in arms if arm != baseline]
    keys = {arm: f"arm{index}" for index, arm in enumerate(dict.fromkeys([baseline, *arms]))}
    styles = {baseline: Style(INK, THEME[0][2], "o", "-", keys[baseline])}
    for index, arm in enumerate(others):
        if ordered:
            share = index / max(len(others) - 1, 1)
            color, dark = _between(_RAMP_LIGHT, share), _between(_RAMP_DARK, share)
        else:
            color, dark = _PALETTE[index % len(_PALETTE)]
        dash = _DASHES[(index // len(_PALETTE) if not ordered else index) % len(_DASHES)]
        styles[arm] = Style(color, dark, _MARKERS[(index + 1) % len(_MARKERS)], dash, keys[arm])
    return styles


def series_styles(names: Sequence[str], ordered: bool) -> dict[str, Style]:
    """Styles of lines that are no arms, such as moments (`ordered`) and series; they have no key."""
    if not names:
        return {}
    if not ordered:
        return {name: replace(style, key="") for name, style in arm_styles(names, names[0], ordered=False).items()}
    last, ends = max(len(names) - 1, 1), len(_RAMP_LIGHT) - 1
    found = {}
    for index, name in enumerate(names):
        at = round(index / last * ends) if len(names) > 1 else 0
        marker, dash = _MARKERS[index % len(_MARKERS)], _DASHES[index % len(_DASHES)]
        found[name] = Style(_RAMP_LIGHT[at], _RAMP_DARK[at], marker, dash, "")
    return found


def css_variables(styles: Mapping[str, Style]) -> dict[str, tuple[str, str, str]]:
    """Colour in the file → (name of the CSS variable, light value, dark value)."""
    variables = {light: (name, light, dark) for light, name, dark in THEME}
    colors = [(style.color, style.dark) for style in styles.values()]
    for light, dark in (*colors, *_PALETTE, *zip(_RAMP_LIGHT, _RAMP_DARK, strict=True)):
        variables.setdefault(light, (f"s{len(variables)}", light, dark))
    return variables


def _between(ramp: Sequence[str], position: float) -> str:
    """The colour at `position` in [0, 1] of a ramp, mixed linearly."""
    left = min(int(position * (len(ramp) - 1)), len(ramp) - 2)
    share = position * (len(ramp) - 1) - left
    a, b = (tuple(int(ramp[i][k : k + 2], 16) for k in (1, 3, 5)) for i in (left, left + 1))
    return "#" + "".join(f"{round(x + (y - x) * share):02x}" for x, y in zip(a, b, strict=True))


def swatch(style: Style, variables: Mapping[str, tuple[str, str, str]]) -> str:
    """A small SVG of an arm's line and marker for the page's legend, in the theme's colours."""
    color = f"var(--{variables[style.color][0]})"
    dash = "" if style.dash == "-" else f' stroke-dasharray="{" ".join(f"{1.8 * part:g}" for part in style.dash[1])}"'
    return (
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" width="{_WIDTH}" height="{_HEIGHT}" aria-hidden="true">'
        f'<path d="M0 {_HEIGHT / 2:g}H{_WIDTH}" stroke="{color}" stroke-width="1.8" fill="none"{dash}/>'
        f'<path d="{" ".join(_outline(style.marker))}" fill="{color}"/></svg>'
    )


def _outline(marker: str) -> Iterator[str]:
    """The commands of an SVG path that draws a marker in the middle of the picture."""
    style = MarkerStyle(marker)
    path = style.get_path().transformed(style.get_transform())
    for points, code in path.iter_segments(simplify=False, curves=True):
        if code == Path.CLOSEPOLY:
            yield "Z"
        else:
            xy = (f"{_WIDTH / 2 + _MARKER * x:.2f} {_HEIGHT / 2 - _MARKER * y:.2f}" for x, y in points.reshape(-1, 2))
            yield f"{_LETTERS[code]}{' '.join(xy)}"
