"""Tuning of arms: the settings that were tried, how their trials ended, and which setting was chosen."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from swapformer.report import number_format
from swapformer.results.arms import ArmCondition, Cell
from swapformer.results.manifest import Manifest
from swapformer.results.trial_files import read_trial
from swapformer.results.tuning import Choice, Tried, Tuning


@dataclass(frozen=True)
class TuningOutcome:
    """A setting that was tried: `values` of its finished trials, and how many are in each other status."""

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


def read_tuning(manifest: Manifest, runs_dir: Path) -> list[Tuned]:
    """The tuning of every arm in every condition, in the study's order; empty where nothing was tuned."""
    tuning = manifest.tuning
    if tuning is None:
        return []
    found: dict[ArmCondition, list[TuningOutcome]] = {}
    for tried in tuning.tried:
        found.setdefault((tried.arm, tried.condition), []).append(_outcome(tried, tuning, runs_dir))
    chosen = {(each.arm, each.condition): each for each in tuning.chosen}
    return [Tuned(*key, tuple(outcomes), chosen.get(key)) for key, outcomes in found.items()]


def _outcome(tried: Tried, tuning: Tuning, runs_dir: Path) -> TuningOutcome:
    values, others = [], dict[str, int]()
    for seed, trial in zip(tuning.seeds, tried.trials, strict=True):
        found = read_trial(runs_dir / "trials" / trial, Cell(tried.arm, seed, trial, probes={}), [])
        if tuning.metric in found.metrics:
            values.append(found.metrics[tuning.metric])
        else:
            others[found.status] = others.get(found.status, 0) + 1
    return TuningOutcome(tried, tuple(values), others)
