"""The sensitivity curve of tuning: the metric that was tuned by against each tuned setting, arm by arm."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from swapformer.report.figures import svg
from swapformer.report.figures.figure_data import FigureData, ReportFigure
from swapformer.report.figures.panels import draw_line, draw_ring, line_panels
from swapformer.report.figures.style import ALARM
from swapformer.report.figures.tooltips import Tooltips
from swapformer.report.tuning import Tuned, TuningOutcome
from swapformer.results.tuning import Tuning


def tuning_curves(data: FigureData, tuned: Sequence[Tuned]) -> list[ReportFigure | None]:
    """For each key that was tuned, the metric against its values, by arm; with several keys, at the best of the others.

    A line joins means over the tuning seeds, dots are single seeds, and a ring marks what was chosen. Call within
    `svg.settings`.
    """
    tuning = data.records.manifest.tuning
    return [] if tuning is None else [_curve(data, tuning, key, tuned) for key in tuning.keys]


def _curve(data: FigureData, tuning: Tuning, key: str, tuned: Sequence[Tuned]) -> ReportFigure | None:
    names = list(dict.fromkeys(each.values[key] for each in tuning.tried if each.share == 1))
    try:
        x_of = {name: float(name) for name in names}
    except ValueError:  # values that are no numbers stand one after the other
        x_of = {name: float(index) for index, name in enumerate(names)}
    profiles = {each.arm: _profile(each, key, data.evidence.directions.get(tuning.metric)) for each in tuned}
    profiles = {
        arm: profile
        for arm, profile in profiles.items()
        if any(each.values or each.others for each in profile.values()) and arm in data.styles
    }
    if not profiles:
        return None
    figure, panels = line_panels(list(profiles), data.styles, key, data.label(tuning.metric))
    values = list(x_of.values())
    wide = min(values) > 0 and max(values) >= 8 * min(values)  # to be told apart on a logarithmic axis alone
    for axes in dict.fromkeys(panels.values()):
        if svg.is_power_series(values) or wide:
            axes.set_xscale("log")
        if len(names) <= 12:
            svg.ticks_at(axes, values, names, rotate=len(names) > 7)
    tooltips = Tooltips(key)
    chosen = {each.arm: each.chosen.values[key] for each in tuned if each.chosen is not None}
    for arm, profile in profiles.items():
        axes, style = panels[arm], data.styles[arm]
        for name, outcome in profile.items():
            axes.plot([x_of[name]] * len(outcome.values), outcome.values, "o", color=style.color, markersize=2.6,
                      alpha=0.5, markeredgewidth=0, zorder=2, gid=style.key)  # fmt: skip
            if outcome.others:
                axes.plot([x_of[name]], [0.97], "x", transform=axes.get_xaxis_transform(), color=ALARM, markersize=5,
                          gid=style.key)  # fmt: skip
        points = sorted((x_of[name], each.mean, each.text, name) for name, each in profile.items())
        xs, means, texts, labels = map(list, zip(*points, strict=True))
        tooltips.add(axes, arm, style, xs, means, texts, labels)
        draw_line(axes, xs, means, style, 4.5, 1.5)
        if arm in chosen:
            draw_ring(axes, x_of[chosen[arm]], profile[chosen[arm]].mean, style, 11, 1.4)
    caption = (
        f"Small dots are the tuning seeds ({', '.join(map(str, tuning.seeds))}), which are not reported; lines join "
        "their means, a ring marks the setting that was chosen. × marks settings with trials that diverged or have no "
        "result."
    )
    if len(tuning.keys) > 1:
        caption += " At each value, the best of the other settings."
    return ReportFigure.of(f"tuning_{svg.slug(key)}", f"{tuning.metric} against {key}", caption, figure, tooltips)


def _profile(tuned: Tuned, key: str, direction: str | None) -> dict[str, TuningOutcome]:
    """For each value of a key the best outcome with it; those that lost trials come last."""

    def rank(outcome: TuningOutcome) -> tuple[int, float]:
        mean = float(np.mean(outcome.values)) if outcome.values else math.inf
        return sum(outcome.others.values()), -mean if direction == "higher" else mean

    best: dict[str, TuningOutcome] = {}
    for outcome in tuned.whole:
        name = outcome.tried.values[key]
        if name not in best or rank(outcome) < rank(best[name]):
            best[name] = outcome
    return best
