"""Which estimates decide a claim, and how many seeds would decide one that is open."""

from __future__ import annotations

import math
from dataclasses import replace

from swapformer.report.statistics.estimates import (
    Both,
    Estimate,
    IdenticalEstimate,
    MeanEstimate,
    Opened,
    RateEstimate,
    Unknown,
)
from swapformer.report.statistics.power import fewest, seeds_range

Region = tuple[float, float]
"""The open interval of true differences where a claim holds."""
Range = tuple[int | None, int | None]
"""From so many seeds to so many; None stands for more than 1000."""


def p_values(estimate: Estimate, region: Region) -> tuple[float, float]:
    """One-sided p-values that the true difference lies inside, and outside, the region."""
    below, above = region
    inside, outside = [], []
    if below != -math.inf:
        inside.append(estimate.p_above(below))
        outside.append(estimate.p_below(below))
    if above != math.inf:
        inside.append(estimate.p_below(above))
        outside.append(estimate.p_above(above))
    return max(inside), min(outside)


def effort(needed: Range) -> tuple[float, float]:
    """A range as something to sort by."""
    low, high = needed
    return (math.inf if low is None else low, math.inf if high is None else high)


def seeds_for(estimate: Estimate, region: Region, level: float) -> Range | None:
    """A range of seeds with which a difference like this one would be decided; None where no number would do."""
    below, above = region
    distance = min(abs(estimate.value - below), abs(estimate.value - above))
    if isinstance(estimate, Opened):
        holds, fails = p_values(estimate, region)
        if (holds if below < estimate.value < above else fails) == 1:
            return None  # the open side is the one that would have to close
        return seeds_for(estimate.inner, region, level)
    if isinstance(estimate, Both):
        parts = [seeds_for(part, region, level) for part in (estimate.first, estimate.second)]
        return None if None in parts else max((part for part in parts if part is not None), key=effort)
    if isinstance(estimate, Unknown) or not math.isfinite(distance):
        return None
    if isinstance(estimate, IdenticalEstimate):
        if distance == 0:
            return None  # at the very edge, with every seed
        enough = fewest(lambda seeds: 2 * min(p_values(replace(estimate, n=seeds), region)) <= level)
        return enough, enough
    if isinstance(estimate, RateEstimate):  # approximate: a t interval, with one more seed of either kind in the spread
        rate = (abs(estimate.total) + 1) / (estimate.n + 2)
        low, high = seeds_range(distance, math.sqrt(rate * (1 - rate)), estimate.n, level)
        clearest = fewest(
            lambda seeds: (
                2 * min(p_values(RateEstimate(int(math.copysign(seeds, estimate.total)), seeds), region)) <= level
            )
        )
        return _at_least(low, clearest), _at_least(high, clearest)
    assert isinstance(estimate, MeanEstimate), f"an estimate of unknown kind: {estimate!r}"
    return seeds_range(distance, estimate.standard_error * math.sqrt(estimate.n), estimate.n, level)


def _at_least(seeds: int | None, least: int | None) -> int | None:
    return None if seeds is None or least is None else max(seeds, least)
