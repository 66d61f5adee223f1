"""Tuning of arms: the settings that were tried, how their trials ended, and which setting was chosen."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from swapformer.report import number_format
from swapformer.results.arms import ArmCondition, Cell, arm_name
from swapformer.results.manifest import Manifest
from swapformer.results.trial_files import read_trial
from swapformer.results.tuning import Choice, Tried, Tuning


@dataclass(frozen=True)
class TuningOutcome:
    """A setting that was tried: `values` of its finished trials, and how many are in each other status.

    Both are empty where that was not published.
    """

    tried: Tried
    values: tuple[float, ...]
    others: Mapping[str, int]

    @property
    def mean(self) -> float:
        """The mean over trials; nan where a trial did not finish, since the mean would flatter."""
        return float(np.mean(self.values)) if self.values and not self.others else math.nan

    @property
    def text(self) -> str:
        """The mean, or the statuses of the trials that did not finish."""
        if not self.values and not self.others:
            return ""
        lost = ", ".join(f"{n} {status}" for status, n in self.others.items())
        spread = max(self.values) - min(self.values) if len(self.values) > 1 else 0.0
        return lost or number_format.number(self.mean, number_format.decimals(spread) if spread else 4)


@dataclass(frozen=True)
class Tuned:
    """One arm in one condition: what was tried, and what was chosen (None: trials are missing)."""

    arm: str
    condition: str
    outcomes: tuple[TuningOutcome, ...]
    chosen: Choice | None

    @property
    def whole(self) -> tuple[TuningOutcome, ...]:
        """What was tried at all steps."""
        return tuple(each for each in self.outcomes if each.tried.share == 1)


@dataclass(frozen=True)
class TriedSetting:
    """A setting of an arm for a table, as text: its result in each stage, and whether it was chosen."""

    arm: str
    condition: str
    setting: str
    first: str
    whole: str
    chosen: str


def with_results(manifest: Manifest, runs_dir: Path) -> Manifest:
    """The manifest with what the trials in the store say of the settings that were tried."""
    if manifest.tuning is None:
        return manifest
    tuning = manifest.tuning
    tried = tuple(replace(each, results=_results(each, tuning, runs_dir)) for each in tuning.tried)
    return replace(manifest, tuning=replace(tuning, tried=tried))


def _results(tried: Tried, tuning: Tuning, runs_dir: Path) -> tuple[float | str, ...]:
    found = list[float | str]()
    for seed, trial in zip(tuning.seeds, tried.trials, strict=False):
        read = read_trial(runs_dir / "trials" / trial, Cell(tried.arm, seed, trial, probes={}), [])
        found.append(read.metrics.get(tuning.metric, read.status))
    return tuple(found)


def read_tuning(manifest: Manifest) -> list[Tuned]:
    """The tuning of every arm in every condition, in the study's order; empty where nothing was tuned."""
    tuning = manifest.tuning
    if tuning is None:
        return []
    found: dict[ArmCondition, list[TuningOutcome]] = {}
    for tried in tuning.tried:
        values = tuple(float(each) for each in tried.results if not isinstance(each, str))
        others = Counter(each for each in tried.results if isinstance(each, str))
        found.setdefault((tried.arm, tried.condition), []).append(TuningOutcome(tried, values, others))
    chosen = {(each.arm, each.condition): each for each in tuning.chosen}
    return [Tuned(*key, tuple(outcomes), chosen.get(key)) for key, outcomes in found.items()]


def tried_settings(tuned: Sequence[Tuned]) -> list[TriedSetting]:
    """A row for each setting that an arm was tried with; none where no result of any was published."""
    rows = []
    for each in tuned:
        by_setting: dict[str, dict[bool, TuningOutcome]] = {}
        for outcome in each.outcomes:
            by_setting.setdefault(outcome.tried.text, {})[outcome.tried.share < 1] = outcome
        for setting, stages in by_setting.items():
            values = next(iter(stages.values())).tried.values
            is_chosen = each.chosen is not None and each.chosen.values == values
            ends = each.chosen.edges if each.chosen is not None else ()
            chosen = ("chosen, at the end of what was tried" if ends else "chosen") if is_chosen else ""
            texts = {first: outcome.text for first, outcome in stages.items()}
            rows.append(
                TriedSetting(each.arm, each.condition, setting, texts.get(True, ""), texts.get(False, ""), chosen)
            )
    return rows if any(row.first or row.whole for row in rows) else []


def ends_text(manifest: Manifest, cells: Collection[ArmCondition]) -> list[str]:
    """Of which of these arms the chosen setting lies at an end of what was tried, for the line of a verdict."""
    at_end: dict[str, list[str]] = {}
    for each in manifest.tuning.chosen if manifest.tuning else ():
        for key in each.edges if (each.arm, each.condition) in cells else ():
            at_end.setdefault(key, []).append(each.arm)
    return [
        f"with {key} of {number_format.listed(list(dict.fromkeys(arms)))} at the end of what was tried"
        for key, arms in at_end.items()
    ]


def stages_text(tuning: Tuning) -> list[str]:
    """How a search in two stages went; nothing where all settings were tried at all steps."""
    shares = {each.share for each in tuning.tried if each.share < 1}
    if not shares:
        return []
    grown = [(arm_name(each.arm, each.condition), each.grown) for each in tuning.chosen if each.grown]
    found = [
        f"A first stage tried all settings with one seed at {number_format.percent(min(shares))} of the steps; the "
        "best and its neighbors were then tried at all of them."
    ]
    if grown:
        arms = number_format.listed([f"{arm} ({count})" for arm, count in grown])
        found.append(f"Where the best lay at an end, twice or half of it was tried too: {arms}.")
    return found
