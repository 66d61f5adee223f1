"""Simulations behind the rules of verdicts: what they promise beside the share of wrong ones, and what was not taken.

Studies are drawn many at once; the estimates are those of `shares`, which a test holds to the report's.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from scipy import special, stats

from benchmarks.statistics.laws import FloatArray, correlated
from benchmarks.statistics.shares import ALPHA, ArrayClaim, estimate, outcomes
from swapformer.report.statistics.failing_seeds import two_groups
from swapformer.report.statistics.pairing import break_even
from swapformer.report.statistics.power import power, seeds_range
from swapformer.report.statistics.small_samples import holm_levels

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
    regions = [(0.0, np.inf) if arm % 2 else (-np.inf, 0.0) for arm in range(1, size + 1)]
    found = outcomes([ArrayClaim(arm, (0,), region) for arm, region in enumerate(regions, 1)], values)
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


def pairing_errors(arms: int, correlation: float, tail: float, n: int, studies: int, seed: int) -> Row:
    """How often a one-sided limit errs, as a multiple of its tail: paired, as the rule says, and chosen by two arms."""
    g = np.random.default_rng([seed, n, arms])
    shared = max(correlation, 0.0)
    values = correlated(shared, g, (studies, arms, n))
    if correlation < 0:  # exchangeable arms with a negative correlation: what they share is taken out
        centred = values - values.mean(axis=1, keepdims=True)
        share = math.sqrt(-correlation * arms)
        values = math.sqrt(1 - share**2) * values + share * centred / math.sqrt(1 - 1 / arms) if share < 1 else centred

    def wrong(mean: FloatArray, error: FloatArray, freedom: FloatArray) -> FloatArray:
        return np.asarray(special.stdtr(freedom, -mean / error) <= tail)

    two = values[:, :2]
    difference = two[:, 0] - two[:, 1]
    paired = wrong(difference.mean(1), difference.std(1, ddof=1) / math.sqrt(n), np.full(studies, n - 1.0))
    a, b = two.var(axis=2, ddof=1).T / n
    welch = wrong(difference.mean(1), np.sqrt(a + b), (a + b) ** 2 / (a**2 + b**2) * (n - 1))
    centred = two - two.mean(axis=2, keepdims=True)
    own = (centred[:, 0] * centred[:, 1]).sum(1) / np.sqrt((centred**2).sum(2).prod(1))
    chosen = np.where(own < break_even(n), welch, paired)
    rule = wrong(*estimate(values, 0, 1))
    return {"paired": paired.mean() / tail, "by the rule": rule.mean() / tail, "by two arms": chosen.mean() / tail}


def variance_errors(spread: float, n: int, studies: int, seed: int) -> Row:
    """Five claims at their edges against the arm that varies most, by Holm: Welch's errors, one variance for all arms,
    and variances that are shrunk towards each other as in moderated t (Smyth 2004, doi 10.2202/1544-6115.1027)."""
    g = np.random.default_rng([seed, n])
    deviations = np.geomspace(1, 1 / spread, 6)
    values = deviations[:, None] * g.normal(size=(studies, 6, n))
    means, variances, d = values.mean(axis=2), values.var(axis=2, ddof=1), n - 1
    gaps = means[:, 1:] - means[:, :1]

    def share(errors: FloatArray, freedom: FloatArray) -> float:
        p = np.sort(special.stdtr(freedom, -gaps / errors), axis=1)
        return float((p[:, 0] <= ALPHA / 5).mean())

    a, b = variances[:, :1] / n, variances[:, 1:] / n
    welch = share(np.sqrt(a + b), (a + b) ** 2 / (a**2 + b**2) * d)
    mean = variances.mean(axis=1, keepdims=True)
    pooled = share(np.sqrt(2 * mean / n) * np.ones((1, 5)), np.full((1, 1), 6.0 * d))
    prior, centre = _prior(variances, d)
    shrunk = (prior * centre + d * variances) / (prior + d)
    moderated = share(np.sqrt((shrunk[:, :1] + shrunk[:, 1:]) / n), 2 * (prior + d))
    return {"Welch": welch, "pooled": pooled, "moderated": moderated}


def _prior(variances: FloatArray, d: int) -> tuple[FloatArray, FloatArray]:
    """The degrees of freedom and the centre of the prior of variances [studies, arms], by the moments of their logs."""
    logs = np.log(variances)
    excess = logs.var(axis=1, ddof=1, keepdims=True) - special.polygamma(1, d / 2)
    grid = np.geomspace(0.05, 1000, 400)
    at = np.abs(special.polygamma(1, grid)[None, :] - np.maximum(excess, 1e-4)).argmin(axis=1)
    half = grid[at][:, None]
    centre = np.exp(
        logs.mean(axis=1, keepdims=True) - special.digamma(d / 2) + np.log(d / 2) + special.digamma(half) - np.log(half)
    )
    return 2 * half, centre


def range_chances(distance: float, error: float, n: int, studies: int, seed: int) -> Row:
    """With which power studies of the low and the high end of the printed range decide, where the first did not."""
    g = np.random.default_rng([seed, n])
    values = distance + g.normal(size=(min(studies, FEW), n))
    means, deviations = values.mean(axis=1), values.std(axis=1, ddof=1)
    undecided = special.stdtr(n - 1, -np.abs(means) * math.sqrt(n) / deviations) > error
    low, high = [], []
    for mean, deviation in zip(means[undecided], deviations[undecided], strict=True):
        found = seeds_range(abs(float(mean)), float(deviation), n, error)
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
        for error, text in ((ALPHA, "5 %"), (ALPHA / 8, "5 % / 8")):
            yield f"{distance:g} standard deviations from the margin, error {text}", distance, error
