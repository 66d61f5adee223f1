"""How each arm's setting was chosen: the trials that are not reported, what they say, and the sensitivity curve."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from swapformer.report import number_format
from swapformer.report.figures import panels, svg
from swapformer.report.figures.figure_data import Drawn, Scene
from swapformer.report.figures.style import ALARM
from swapformer.report.figures.tooltips import Hover
from swapformer.results.arms import Cell
from swapformer.results.manifest import Manifest
from swapformer.results.trial_files import read_trial
from swapformer.results.tuning import Choice, Tried, Tuning


@dataclass(frozen=True)
class Outcome:
    """A setting as its trials ended: `values` of those that finished, and how many ended or stand otherwise."""

    tried: Tried
    values: tuple[float, ...]
    others: Mapping[str, int]

    @property
    def mean(self) -> float:
        """Of the trials that finished; nan where a trial did not, since the mean would flatter."""
        return float(np.mean(self.values)) if self.values and not self.others else math.nan

    @property
    def text(self) -> str:
        """The mean, or what became of the trials instead."""
        lost = ", ".join(f"{n} {status}" for status, n in self.others.items())
        spread = max(self.values) - min(self.values) if len(self.values) > 1 else 0.0
        places = number_format.decimals(spread) if spread else 4
        return lost or number_format.number(self.mean, places)


@dataclass(frozen=True)
class Tuned:
    """One arm in one condition: what was tried, and what was chosen (None: trials are missing)."""

    arm: str
    condition: str
    outcomes: tuple[Outcome, ...]
    chosen: Choice | None


def read_tuning(manifest: Manifest, runs_dir: Path) -> list[Tuned]:
    """The tuning of every arm in every condition, in the study's order; empty where nothing was tuned."""
    tuning = manifest.tuning
    if tuning is None:
        return []
    found: dict[tuple[str, str], list[Outcome]] = {}
    for tried in tuning.tried:
        found.setdefault((tried.arm, tried.condition), []).append(_outcome(tried, tuning, runs_dir))
    chosen = {(each.arm, each.condition): each for each in tuning.chosen}
    return [Tuned(*place, tuple(outcomes), chosen.get(place)) for place, outcomes in found.items()]


def _outcome(tried: Tried, tuning: Tuning, runs_dir: Path) -> Outcome:
    values, others = [], dict[str, int]()
    for seed, trial in zip(tuning.seeds, tried.trials, strict=True):
        found = read_trial(runs_dir / "trials" / trial, Cell(tried.arm, seed, trial), [])
        if tuning.metric in found.metrics:
            values.append(found.metrics[tuning.metric])
        else:
            others[found.status] = others.get(found.status, 0) + 1
    return Outcome(tried, tuple(values), others)


def sensitivity(scene: Scene, tuned: Sequence[Tuned]) -> list[Drawn]:
    """For each key that was tuned, the metric against its values, by arm; with several keys, at the best of the others.

    A line joins means over the tuning seeds, dots are single seeds, and a ring marks what was chosen. Call within
    `svg.settings`.
    """
    tuning = scene.records.manifest.tuning
    if tuning is None:
        return []
    drawn = [_curve(scene, tuning, key, tuned) for key in tuning.keys]
    return [figure for figure in drawn if figure is not None]


def _curve(scene: Scene, tuning: Tuning, key: str, tuned: Sequence[Tuned]) -> Drawn | None:
    names = list(dict.fromkeys(each.values[key] for each in tuning.tried))
    places = _places(names)
    profiles = {each.arm: _profile(each, key, scene.evidence.directions.get(tuning.metric)) for each in tuned}
    profiles = {arm: profile for arm, profile in profiles.items() if profile and arm in scene.looks}
    if not profiles:
        return None
    figure, axes_of = panels.panels(list(profiles), scene.looks, key, scene.better(tuning.metric))
    for axes in dict.fromkeys(axes_of.values()):
        if svg.is_power_series(list(places.values())) or _wide(list(places.values())):
            axes.set_xscale("log")
        if len(names) <= 12:
            svg.ticks_at(axes, list(places.values()), names, rotate=len(names) > 7)
    hover = Hover(key)
    picks = {each.arm: each.chosen for each in tuned if each.chosen is not None}
    for arm, profile in profiles.items():
        axes, look = axes_of[arm], scene.looks[arm]
        for name, outcome in profile.items():
            axes.plot([places[name]] * len(outcome.values), outcome.values, "o", color=look.color, markersize=2.6,
                      alpha=0.5, markeredgewidth=0, zorder=2, gid=look.key)  # fmt: skip
            if outcome.others:
                axes.plot([places[name]], [0.97], "x", transform=axes.get_xaxis_transform(), color=ALARM, markersize=5,
                          gid=look.key)  # fmt: skip
        means = {places[name]: outcome.mean for name, outcome in profile.items()}
        shown = [(places[name], each.mean, each.text, name) for name, each in profile.items()]
        hover.add(axes, arm, look, *map(list, zip(*sorted(shown), strict=True)))
        xs = sorted(means)
        axes.plot(xs, [means[x] for x in xs], look.marker, color=look.color, linestyle=look.dash, linewidth=1.5,
                  markersize=4.5, markeredgewidth=0, zorder=3, gid=look.key)  # fmt: skip
        if arm in picks:
            at = picks[arm].values[key]
            axes.plot([places[at]], [means[places[at]]], "o", markersize=11, markerfacecolor="none",
                      markeredgecolor=look.color, markeredgewidth=1.4, zorder=4, gid=look.key)  # fmt: skip
    caption = (
        f"Small dots are the tuning seeds ({', '.join(map(str, tuning.seeds))}), which are not reported; lines join "
        "their means, a ring marks the setting that was chosen. × marks settings with trials that diverged or have no "
        "result."
    )
    if len(tuning.keys) > 1:
        caption += " At each value, the best of the other settings."
    title = f"{tuning.metric} against {key}"
    return Drawn(f"tuning_{svg.slug(key)}", title, caption, svg.to_svg(figure, title), hover.plain())


def _profile(tuned: Tuned, key: str, direction: str | None) -> dict[str, Outcome]:
    """For each value of a key the best outcome with it; those that lost trials come last."""
    best: dict[str, Outcome] = {}
    for outcome in tuned.outcomes:
        name = outcome.tried.values[key]
        if name not in best or _rank(outcome, direction) < _rank(best[name], direction):
            best[name] = outcome
    return best


def _rank(outcome: Outcome, direction: str | None) -> tuple[int, float]:
    mean = float(np.mean(outcome.values)) if outcome.values else math.inf
    return sum(outcome.others.values()), -mean if direction == "higher" else mean


def _places(names: Sequence[str]) -> dict[str, float]:
    """Where values stand: at their numbers, or one after the other where not all are numbers."""
    try:
        return {name: float(name) for name in names}
    except ValueError:
        return {name: float(index) for index, name in enumerate(names)}


def _wide(values: Sequence[float]) -> bool:
    """Whether positive values spread over enough to be told apart on a logarithmic axis alone."""
    return min(values) > 0 and max(values) >= 8 * min(values)
