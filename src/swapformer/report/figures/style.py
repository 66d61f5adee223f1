"""How arms look: colour, marker and line style, each enough on its own; in light and in dark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

Dash = Literal["-"] | tuple[float, tuple[float, ...]]

INK, SOFT, GRID, PAPER, ALARM = "#1f2328", "#646c76", "#e4e7eb", "#fffffe", "#b3261e"
#: What the page shows instead, by theme: the colour in an SVG file, the CSS variable, its value in dark.
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
    ("#3a86c8", "#8cc8f5"),
    ("#7a5c3e", "#c7a27c"),
)
#: viridis between its dark and its light end, for arms that are ordered along an axis; for dark pages a lighter range.
_RAMP_LIGHT = ("#440154", "#472d7b", "#3b528b", "#2c728e", "#21918c", "#28ae80", "#5ec962")
_RAMP_DARK = ("#8d7bd6", "#6f8fe0", "#4aa6dd", "#35bcc0", "#3fd09a", "#86e06a", "#e3ea4f")
_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">", "p", "h", "*")
_DASHES: tuple[Dash, ...] = ("-", (0, (5, 1.5)), (0, (1.5, 1.2)), (0, (6, 1.5, 1.5, 1.5)))


@dataclass(frozen=True)
class Style:
    """One arm's look; `dark` is the colour on dark pages, `key` names the arm in figures, so that pages can hide it."""

    color: str
    dark: str
    marker: str
    dash: Dash
    key: str


def styles(arms: Sequence[str], baseline: str, ordered: bool) -> dict[str, Style]:
    """A look for every arm. The baseline is drawn in ink; `ordered` arms run along a ramp."""
    others = [arm for arm in arms if arm != baseline]
    keys = {arm: f"arm{index}" for index, arm in enumerate(dict.fromkeys([baseline, *arms]))}
    looks = {baseline: Style(INK, THEME[0][2], "o", "-", keys[baseline])}
    for index, arm in enumerate(others):
        if ordered:
            place = index / max(len(others) - 1, 1)
            color, dark = _between(_RAMP_LIGHT, place), _between(_RAMP_DARK, place)
        else:
            color, dark = _PALETTE[index % len(_PALETTE)]
        dash = _DASHES[(index // len(_PALETTE) if not ordered else index) % len(_DASHES)]
        looks[arm] = Style(color, dark, _MARKERS[(index + 1) % len(_MARKERS)], dash, keys[arm])
    return looks


def css_variables(looks: Mapping[str, Style]) -> dict[str, tuple[str, str, str]]:
    """Colour in the file → (name of the CSS variable, light value, dark value)."""
    variables = {light: (name, light, dark) for light, name, dark in THEME}
    for style in looks.values():
        variables.setdefault(style.color, (f"s{len(variables)}", style.color, style.dark))
    return variables


def _between(ramp: Sequence[str], place: float) -> str:
    """The colour at `place` in [0, 1] of a ramp, mixed linearly."""
    left = min(int(place * (len(ramp) - 1)), len(ramp) - 2)
    share = place * (len(ramp) - 1) - left
    a, b = (tuple(int(ramp[i][k : k + 2], 16) for k in (1, 3, 5)) for i in (left, left + 1))
    return "#" + "".join(f"{round(x + (y - x) * share):02x}" for x, y in zip(a, b, strict=True))
