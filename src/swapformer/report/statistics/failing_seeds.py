"""The risk that a few seeds cannot exclude: some seeds fail to learn, which a mean does not show."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from swapformer.report import number_format
from swapformer.report.statistics.claims import Claim
from swapformer.report.statistics.estimates import FloatArray
from swapformer.report.statistics.evidence import Evidence

FEWEST = 4
ERROR = 0.01
"""How often values of a normal law are taken for two groups."""
UNEQUAL = 15
"""How many times as far the seeds of one arm must lie apart as those of another, for t to err more often."""
NEAR = 0.01
"""A share or rate this close to 0 or 1 is saturated."""


@dataclass(frozen=True)
class Groups:
    """Values that fall into two groups: so many below the gap, and above it."""

    below: int
    above: int
    gap: tuple[float, float]


def excluded_share(seeds: int, error: float = 0.05) -> float:
    """The largest share of failing seeds that stays unseen in so many seeds with probability `error`."""
    return 1 - error ** (1 / seeds)


def two_groups(values: FloatArray) -> Groups | None:
    """The groups that values fall into, where their largest gap says that there are two; None elsewhere.

    The statistic is the largest gap between neighbours over the sum of the ranges on both of its sides. Values of a
    normal law exceed the threshold in 1 % of samples.
    """
    if len(values) < FEWEST:
        return None
    ordered = np.sort(values)
    at, statistic = _widest(ordered)
    if not statistic > _threshold(len(values)):
        return None
    return Groups(at + 1, len(values) - at - 1, (float(ordered[at]), float(ordered[at + 1])))


def _widest(ordered: FloatArray) -> tuple[int, float]:
    gaps = np.diff(ordered)
    at = int(gaps.argmax())
    within = float(np.ptp(ordered)) - float(gaps[at])
    return at, float(gaps[at]) / within if within > 0 else math.inf if gaps[at] > 0 else 0.0


@lru_cache
def _threshold(n: int) -> float:
    """The threshold for n values, simulated with a fixed generator."""
    samples = np.sort(np.random.default_rng(n).normal(size=(40_000, n)), axis=1)
    gaps = np.diff(samples, axis=1).max(axis=1)
    return float(np.quantile(gaps / (np.ptp(samples, axis=1) - gaps), 1 - ERROR))


def seeds_to_reach(level: float) -> int:
    """The seeds from which on `reaches` more than half of them can be decided at a level: .5^n is at most that."""
    return math.ceil(math.log(level) / math.log(0.5) - 1e-9)


def notes(claim: Claim, evidence: Evidence, level: float) -> list[str]:
    """Notes on a verdict about means where seeds may fail to learn: what they show, and what they exclude.

    `level`: what one of the study's claims may err with.
    """
    found, doubtful = [], False
    for arm in claim.arms:
        values = evidence.finite_values(arm, str(claim.metric))
        if groups := two_groups(values):
            digits = number_format.decimals(groups.gap[1] - groups.gap[0])
            low, high = (number_format.number(edge, digits) for edge in groups.gap)
            sizes = f"{groups.below} up to {low}, {groups.above} from {high} on"
            found.append(f"seeds of {arm} fall into two groups in {claim.metric}: {sizes}; a mean describes neither")
        share = evidence.directions.get(str(claim.metric)) == "higher" and bool(((values >= 0) & (values <= 1)).all())
        saturated = share and len(values) > 1 and bool((np.minimum(values, 1 - values) <= NEAR).all())
        doubtful |= bool(groups) or saturated or bool(evidence.diverged[arm].any())
    seeds = min(int(evidence.ended(arm).sum()) for arm in claim.arms)
    if doubtful and seeds:
        most, needed = number_format.percent(round(excluded_share(seeds), 2)), seeds_to_reach(level)
        advice = (
            "claim `reaches`, which counts them"
            if seeds >= needed
            else f"to count them by `reaches` takes {needed} seeds"
        )
        found.append(f"{seeds} seeds leave open what up to {most} of all seeds do; {advice}")
    return found


def doubts(claim: Claim, evidence: Evidence) -> list[str]:
    """Why t may err more often than it promises of a claim about means, in words; nothing where seeds look normal."""
    found, spreads = [], dict[str, float]()
    for arm in claim.names:
        values = evidence.finite_values(arm, str(claim.metric))
        if two_groups(values):
            found.append(f"seeds of {arm} fall into two groups")
        if 0 < int(evidence.diverged[arm].sum()) < int(evidence.ended(arm).sum()):
            found.append(f"{arm} fails with some seeds")
        if len(values) >= FEWEST and (spread := float(values.std(ddof=1))) > 0:
            spreads[arm] = spread
    if spreads and (ratio := max(spreads.values()) / min(spreads.values())) >= UNEQUAL:
        wide, narrow = max(spreads, key=lambda arm: spreads[arm]), min(spreads, key=lambda arm: spreads[arm])
        found.append(f"seeds of {wide} differ {ratio:.0f} times as much as those of {narrow}")
    return found
