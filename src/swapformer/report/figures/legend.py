"""How an arm is drawn, as a small picture for the page's legend: its line, its marker, its colour."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from matplotlib.markers import MarkerStyle
from matplotlib.path import Path

from swapformer.report.figures.style import Style

_WIDTH, _HEIGHT, _MARKER = 30, 12, 7
_LETTERS = {Path.MOVETO: "M", Path.LINETO: "L", Path.CURVE3: "Q", Path.CURVE4: "C"}


def swatch(look: Style, variables: Mapping[str, tuple[str, str, str]]) -> str:
    """An SVG in the theme's colours."""
    color = f"var(--{variables[look.color][0]})"
    dash = "" if look.dash == "-" else f' stroke-dasharray="{" ".join(f"{1.8 * part:g}" for part in look.dash[1])}"'
    return (
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" width="{_WIDTH}" height="{_HEIGHT}" aria-hidden="true">'
        f'<path d="M0 {_HEIGHT / 2:g}H{_WIDTH}" stroke="{color}" stroke-width="1.8" fill="none"{dash}/>'
        f'<path d="{" ".join(_outline(look.marker))}" fill="{color}"/></svg>'
    )


def _outline(marker: str) -> Iterator[str]:
    """A marker's outline in the words of SVG, in the middle of the picture."""
    style = MarkerStyle(marker)
    path = style.get_path().transformed(style.get_transform())
    for points, code in path.iter_segments(simplify=False, curves=True):
        if code == Path.CLOSEPOLY:
            yield "Z"
        else:
            placed = [
                f"{_WIDTH / 2 + _MARKER * x:.2f} {_HEIGHT / 2 - _MARKER * y:.2f}" for x, y in points.reshape(-1, 2)
            ]
            yield f"{_LETTERS[code]}{' '.join(placed)}"
