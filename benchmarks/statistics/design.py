"""Simulations behind the rules of verdicts: what they promise beside the share of wrong ones, and what was not taken.

Studies are drawn many at once; the estimates are those of `shares`, which a test holds to the report's.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from scipy import special, stats

from benchmarks.statistics.laws import correlated
from benchmarks.statistics.shares import ALPHA, ArrayClaim, outcomes
from swapformer.report.statistics.estimates import MeanEstimate
from swapformer.report.statistics.failing_seeds import two_groups
from swapformer.report.statistics.holm import holm_levels
from swapformer.report.statistics.power import power, seeds_for

Row = dict[str, float]
FEW = 4000
"""Studies or samples of a cell at most, where each is worked out alone."""


def missing_intervals(clear: int, n: int, studies: int, seed: int) -> Row:
    """Eight independent claims of one difference each, `clear` of them far from their margins: wrong verdicts, and
    intervals that miss a true difference somewhere."""
    g = np.random.default_rng([seed, n, clear])
    values = g.normal(size=(studies, 8, n))
    means, errors = values.mean(axis=2), values.std(axis=2, ddof=1) / math.sqrt(n)
    t = means / errors
    far = np.arange(8) < clear
    p = np.where(far, 0.0, special.stdtr(n - 1, -np.abs(t)))
    levels = np.array([holm_levels(list(row), ALPHA) for row in p[: min(studies, FEW)]])
    t, p = t[: len(levels)], p[: len(levels)]
    # Of a claim “above a margin” both ends have its level, as it has one rival.
    critical = -special.stdtrit(n - 1, levels)
    missed = np.abs(t) > critical
    wrong = (p <= levels) & ~far & (t > 0)
    return {
        "some interval misses": float(missed.any(axis=1).mean()),
        "false supported": float(wrong.any(axis=1).mean()),
    }


def opposed_shares(size: int, correlation: float, n: int, studies: int, seed: int) -> Row:
    """Claims at their edges that share a baseline, every other one of the opposite direction."""
    g = np.random.default_rng([seed, n, size])
    values = correlated(correlation, g, (studies, size + 1, n))
    # at an edge of 0 both verdicts would share the level, so the arms lie one unit from the baseline
    regions = [(1.0, np.inf) if arm % 2 else (-np.inf, -1.0) for arm in range(1, size + 1)]
    shifted = values + np.array([0.0, *(1.0 if arm % 2 else -1.0 for arm in range(1, size + 1))])[:, None]
    found = outcomes([ArrayClaim(arm, (0,), region) for arm, region in enumerate(regions, 1)], shifted)
    return {
        "false supported": float(np.mean((found > 0).any(axis=1))),
        "false refuted": float(np.mean((found < 0).any(axis=1))),
    }


def opposed_bound(correlation: float, level: float = ALPHA) -> float:
    """The error of two opposed claims at their edges whose statistics are normal with this correlation: A is wrong at
    level / 2, or B is, or one is rightly decided and the other wrong at all of the level."""
    law = stats.multivariate_normal([0, 0], [[1, -correlation], [-correlation, 1]])
    half, whole = special.ndtri(1 - level / 2), special.ndtri(1 - level)

    def beyond(x: float, y: float) -> float:
        return float(law.cdf([-x, -y]))

    other = stats.multivariate_normal([0, 0], [[1, correlation], [correlation, 1]])

    def across(x: float, y: float) -> float:
        """P(A refuted beyond x, B supported beyond y)."""
        return float(other.cdf([-x, -y]))

    return level - beyond(half, half) + 2 * (across(half, whole) - across(half, half))


def range_chances(distance: float, error: float, n: int, studies: int, seed: int) -> Row:
    """With which power studies of the low and the high end of the printed range decide, where the first did not."""
    g = np.random.default_rng([seed, n])
    values = distance + g.normal(size=(min(studies, FEW), n))
    means, deviations = values.mean(axis=1), values.std(axis=1, ddof=1)
    undecided = special.stdtr(n - 1, -np.abs(means) * math.sqrt(n) / deviations) > error
    low, high = [], []
    for mean, deviation in zip(means[undecided], deviations[undecided], strict=True):
        estimate = MeanEstimate(abs(float(mean)), n, float(deviation) / math.sqrt(n))
        found = seeds_for(estimate, (0.0, math.inf), error)
        assert found is not None  # seeds decide every mean
        low.append(1.0 if found.low is None else power(distance, 1.0, found.low, error))
        high.append(1.0 if found.high is None else power(distance, 1.0, found.high, error))
    ends = {"low end decides": low, "high end decides": high}
    return {name: float(np.mean(found)) if found else math.nan for name, found in ends.items()}


def group_shares(law: str, n: int, studies: int, seed: int) -> Row:
    """How often values are taken for two groups, and how often all seeds of two modes lie in one of them."""
    g = np.random.default_rng([seed, n])
    size = (min(studies, FEW), n)
    upper = g.random(size) < 0.5
    laws = {
        "two modes 50 standard deviations apart": 50.0 * upper + g.normal(size=size),
        "lognormal": g.lognormal(size=size),
        "normal": g.normal(size=size),
    }
    found = np.mean([two_groups(row) is not None for row in laws[law]])
    one = float((upper.all(axis=1) | ~upper.any(axis=1)).mean()) if law.startswith("two") else 0.0
    return {"taken for two groups": float(found), "all seeds in one": one}


def uncounted_looks(counts: tuple[int, ...], studies: int, seed: int) -> float:
    """How often a claim at its edge is decided wrongly where every look takes all of the error."""
    values = np.random.default_rng(seed).normal(size=(studies, max(counts)))
    wrong = np.zeros(studies, dtype=bool)
    decided = np.zeros(studies, dtype=bool)
    for n in counts:
        seen = values[:, :n]
        t = seen.mean(axis=1) / seen.std(axis=1, ddof=1) * math.sqrt(n)
        limit = float(special.stdtrit(n - 1, 1 - ALPHA))
        wrong |= (t > limit) & ~decided
        decided |= np.abs(t) > limit
    return float(wrong.mean())


def laws_of_ranges() -> Iterator[tuple[str, float, float]]:
    """Names, true distances in standard deviations, and errors of the ranges that are simulated."""
    for distance in (0.7, 1.0, 2.0):
        for error, text in ((ALPHA, "4 %"), (ALPHA / 8, "4 % / 8")):
            yield f"{distance:g} standard deviations from the margin, error {text}", distance, error
