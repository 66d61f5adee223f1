"""The grid's figure: differences to the baseline in every condition; where they interact, lines are not level."""

from __future__ import annotations

import math
from collections.abc import Mapping

from matplotlib.axes import Axes

from swapformer.report.figures import panels, svg
from swapformer.report.figures.figure_data import Drawn, Scene
from swapformer.report.figures.style import INK
from swapformer.report.figures.tooltips import Hover, interval_text
from swapformer.results.arms import Values


def across(metric: str, conditions: Mapping[str, Values], scenes: Mapping[str, Scene]) -> Drawn | None:
    """Paired differences to the baseline by condition; None where there is nothing to compare. Call within
    `svg.settings`."""
    first = next(iter(scenes.values()))
    arms = [arm for arm in first.looks if arm != first.baseline and _known(arm, metric, scenes)]
    if not arms:
        return None
    factors = list(next(iter(conditions.values())))
    figure, axes_of = panels.panels(arms, first.looks, " × ".join(factors), f"difference to {first.baseline}")
    hover = Hover(" × ".join(factors), "point")
    together = len(set(axes_of.values())) == 1
    for axes in dict.fromkeys(axes_of.values()):
        axes.axhline(0, color=INK, linewidth=1, zorder=1)
        names = [svg.wrap(", ".join(values.values()), 14) for values in conditions.values()]
        svg.ticks_at(axes, range(len(names)), names, rotate=len(names) > 5)
        axes.set_xlim(-0.4, len(names) - 0.6)
    for index, arm in enumerate(arms):
        shift = 0.3 * ((index + 0.5) / len(arms) - 0.5) if together else 0.0
        _draw(arm, metric, shift, scenes, axes_of, hover)
    return Drawn(
        f"grid_{svg.slug(metric)}",
        f"{metric}: differences to {first.baseline} by condition",
        "Mean paired differences with 95 % t intervals, not corrected for several comparisons. Lines that are not "
        "level are interactions.",
        svg.to_svg(figure, f"{metric} by condition"),
        hover.plain(),
    )


def _known(arm: str, metric: str, scenes: Mapping[str, Scene]) -> bool:
    return any(_comparison(arm, metric, scene) for scene in scenes.values())


def _comparison(arm: str, metric: str, scene: Scene) -> tuple[float, float, float] | None:
    """The difference and its interval."""
    summary = scene.summaries(metric).get(arm) if arm in scene.evidence.arms else None
    found = summary.comparison if summary is not None else None
    return None if found is None or not found.pairs else (found.difference, found.lower, found.upper)


def _draw(
    arm: str, metric: str, shift: float, scenes: Mapping[str, Scene], axes_of: Mapping[str, Axes], hover: Hover
) -> None:
    axes, look = axes_of[arm], next(iter(scenes.values())).looks[arm]
    xs: list[float] = []
    means: list[float] = []
    texts: list[str] = []
    for place, scene in enumerate(scenes.values()):
        found = _comparison(arm, metric, scene)
        mean, *ends = found or (math.nan, math.nan, math.nan)
        xs.append(place + shift)
        means.append(mean)
        texts.append(interval_text(mean, ends[0], ends[1], signed=True))
        if all(map(math.isfinite, ends)):
            axes.plot(
                [place + shift] * 2,
                ends,
                color=look.color,
                linewidth=1.8,
                solid_capstyle="butt",
                zorder=3,
                gid=look.key,
            )
    axes.plot(
        xs, means, look.marker, color=look.color, linestyle=look.dash, linewidth=1.1, markersize=6, markeredgewidth=0,
        zorder=4, gid=look.key,
    )  # fmt: skip
    hover.add(axes, arm, look, xs, means, texts, list(scenes))
