"""Panels of a figure: curves and images beside each other."""

from __future__ import annotations

from collections.abc import Callable

import torch
from matplotlib.figure import Figure
from torch import Tensor

from swapformer.report.figures.style import arm_styles
from swapformer.report.figures.svg import add_panel, label, new_figure, title

Lines = dict[str, tuple[Tensor, Tensor]]
Panel = Callable[[Figure, float, float], None]
"""Draws into a figure between two margins, in inches from its left and right edge."""


def figure(*panels: Panel) -> Figure:
    """One panel beside the other."""
    width = 5.0 * len(panels)
    drawn = new_figure(3.6, width)
    for place, draw in enumerate(panels):
        draw(drawn, 5.0 * place + 0.75, width - 5.0 * (place + 1) + 0.35)
    return drawn


def curves(lines: Lines, name: str, x: str, y: str) -> Panel:
    """Lines with a legend, if there are several."""

    def draw(figure: Figure, left: float, right: float) -> None:
        axes = add_panel(figure, left, 0.6, right, 0.75)
        looks = arm_styles(list(lines), next(iter(lines)), ordered=len(lines) > 3)
        for key, (xs, ys) in lines.items():
            look = looks[key]
            axes.plot(xs.numpy(), ys.numpy(), color=look.color, linestyle=look.dash, linewidth=1.6, label=key)
        if len(lines) > 1:
            axes.legend(fontsize=7.5, frameon=False, ncols=2 if len(lines) > 4 else 1)
        label(axes, x, y)
        title(axes, name)

    return draw


def image(matrix: Tensor, name: str, x: str, y: str) -> Panel:
    """A matrix with its scale."""

    def draw(figure: Figure, left: float, right: float) -> None:
        axes = add_panel(figure, left, 0.6, right + 0.45, 0.75)
        axes.grid(False)
        shown = axes.imshow(matrix.numpy(), cmap="viridis", interpolation="nearest", aspect="equal")
        figure.colorbar(shown, ax=axes, fraction=0.046).ax.tick_params(labelsize=8)
        label(axes, x, y)
        title(axes, name)

    return draw


def by_head(x: Tensor, y_HT: Tensor) -> Lines:
    """A line for each head; one for all where they agree."""
    if torch.allclose(y_HT, y_HT[:1].expand_as(y_HT), atol=1e-5):
        return {"every head": (x, y_HT[0])}
    return {f"head {head + 1}": (x, line) for head, line in enumerate(y_HT)}
