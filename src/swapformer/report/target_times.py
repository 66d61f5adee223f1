"""Times to a target: when a trial's history first reaches a value, cut off at a horizon that all trials share.

A trial that does not reach the target within the horizon has no time, only a bound. It counts with the horizon, as in a
restricted mean survival time E min(T, horizon) (Royston and Parmar 2013, doi 10.1186/1471-2288-13-152), is known as cut
off, and is nowhere taken for one that reached the target then. Horizons differ where trainings do (operations of a
wider arm, seconds of a slower one). Cut off at its own, a trial that was stopped early and never got there would look
faster than one that did, so the shortest horizon of a condition counts for all of its trials.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import numpy as np

if TYPE_CHECKING:
    import pandas as pd

Key = TypeVar("Key")
UNITS = ("steps", "tokens", "operations", "seconds")


@dataclass(frozen=True)
class TargetTime:
    """When a trial reached its target, infinite if it did not, and how much its whole training took; in one unit."""

    time: float
    horizon: float

    @property
    def restricted(self) -> float:
        """min(T, horizon); nan where the target or the horizon is not known, as the tokens of another command are."""
        known = not math.isnan(self.time) and 0 < self.horizon < math.inf
        return min(self.time, self.horizon) if known else math.nan


def first_step(curve: pd.DataFrame, target: float, higher: bool, interpolate: bool = False) -> float:
    """The first evaluated step of a curve (columns step, value) that is as good as the target; inf where none is.

    With `interpolate` the step at which a straight line from the evaluation before it reaches the target; an evaluation
    that was no finite number gives no line. nan without a target.
    """
    if math.isnan(target):
        return math.nan
    ordered = curve.sort_values("step")
    steps, values = ordered["step"].to_numpy(dtype=float), ordered["value"].to_numpy(dtype=float)
    reached = np.flatnonzero(values >= target if higher else values <= target)
    if not len(reached):
        return math.inf
    at = int(reached[0])
    if not interpolate or at == 0 or not math.isfinite(values[at - 1]):
        return float(steps[at])
    share = (values[at - 1] - target) / (values[at - 1] - values[at])
    return float(steps[at - 1] + share * (steps[at] - steps[at - 1]))


def last_value(curve: pd.DataFrame) -> float:
    """The value of a curve at its last step; nan of an empty one."""
    values = curve.sort_values("step")["value"].to_numpy(dtype=float)
    return float(values[-1]) if len(values) else math.nan


def cut_off(times: Mapping[Key, TargetTime]) -> tuple[dict[Key, float], frozenset[Key]]:
    """min(T, horizon) of each trial with the shortest horizon of them all, and the trials that did not get there."""
    known = {key: each for key, each in times.items() if not math.isnan(each.restricted)}
    horizon = min((each.horizon for each in known.values()), default=math.nan)
    values = {key: min(times[key].time, horizon) if key in known else math.nan for key in times}
    return values, frozenset(key for key, each in known.items() if each.time > horizon)
