"""Whether the arms of a study are compared seed by seed in a metric, or by the means of independent samples.

Pairing by seed takes the noise that arms share out of their difference, and pays with half of the degrees of freedom:
n - 1 instead of 2(n - 1). It narrows intervals where the correlation of the arms is above 1 - (t(2n - 2) / t(n - 1))².
The rule must not look at the difference, nor depend on other claims; so it asks the mean correlation of all arms, of
which there must be four: chosen by the sampled correlation of two arms, the narrower interval errs too often.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy import special

from swapformer.report.statistics.estimates import FloatArray

FEWEST_ARMS = 4
TAIL = 0.05
"""The tail at which paired and unpaired intervals are held against each other."""


@dataclass(frozen=True)
class Pairing:
    """Whether differences in a metric are paired by seed, and why: `reason` in words.

    `correlation` is the mean over all pairs of arms; nan where the rule did not need it.
    """

    paired: bool
    reason: str
    correlation: float = math.nan


def break_even(seeds: int) -> float:
    """The correlation above which pairing narrows an interval over so many seeds."""
    unpaired, paired = special.stdtrit([2 * seeds - 2, seeds - 1], 1 - TAIL)
    return float(1 - (unpaired / paired) ** 2)


def choose(values: FloatArray, one_class: bool) -> Pairing:
    """The rule for `values` [arms, seeds] of all arms that have the metric, nan where a seed has none."""
    arms, seeds = values.shape
    if arms < FEWEST_ARMS:
        return Pairing(True, f"fewer than {FEWEST_ARMS} arms share the metric")
    if not np.isfinite(values).all() or seeds < 2:
        return Pairing(True, "some arm lacks a seed")
    if not one_class:
        return Pairing(True, "the trials ran in several environment classes")
    correlation, least = mean_correlation(values), break_even(seeds)
    sign = "below" if correlation < least else "not below"
    told = f"over {seeds} seeds the mean correlation of {arms} arms is {correlation:.2f}, {sign} {least:.2f}"
    return Pairing(correlation >= least, told.replace("-", "−"), correlation)


def mean_correlation(values: FloatArray) -> float:
    """The mean correlation over the seeds of all pairs of arms [arms, seeds]; that of an arm without spread is 0."""
    centred = values - values.mean(axis=1, keepdims=True)
    norms = np.sqrt((centred**2).sum(axis=1, keepdims=True))
    still = norms <= 1e-12 * np.maximum(np.abs(values).max(axis=1, keepdims=True), 1e-300)
    unit = np.where(still, 0.0, centred / np.where(still, 1.0, norms))
    arms = len(values)
    return float(((unit.sum(axis=0) ** 2).sum() - (~still).sum()) / (arms * (arms - 1)))
