"""Shares of wrong verdicts, of intervals that cover and of claims that are decided, over many studies at once.

The verdicts are those of `swapformer.report.statistics.verdicts`, worked out here for arrays of studies; a test holds
the two together.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import special

from benchmarks.statistics.laws import ARMS, FloatArray, Law, correlated
from swapformer.report.statistics.estimates import parts_of_level
from swapformer.report.statistics.verdicts import ALPHA as WHOLE
from swapformer.report.statistics.verdicts import FIRST

ALPHA = FIRST * WHOLE
"""The error of the look at the seeds that a study states."""
FAR = 2.0
"""Standard deviations of a difference between the truth and the margin, where power is asked."""


@dataclass(frozen=True)
class ArrayClaim:
    """The claim that mean(arm) - mean(other) lies in a region, for every one of `than`; arms are numbers."""

    arm: int
    than: tuple[int, ...]
    region: tuple[float, float]


def claims_at(means: FloatArray) -> list[ArrayClaim]:
    """Eight claims whose margins are the true differences to the first arm, which is the lowest."""
    gaps = [float(mean - means[0]) for mean in means]
    single = [ArrayClaim(arm, (0,), (gaps[arm], np.inf)) for arm in range(1, ARMS)]
    within = [ArrayClaim(arm, (0,), (-gaps[arm], gaps[arm])) for arm in (ARMS - 2, ARMS - 1)]
    return [*single, *within, ArrayClaim(0, tuple(range(1, ARMS)), (-np.inf, -min(gaps[1:])))]


def law_shares(law: Law, n: int, studies: int, seed: int) -> dict[str, float]:
    """The shares of studies with a false verdict, of intervals that cover, and of claims that are supported."""
    values = law.draw(np.random.default_rng([seed, n]), studies, n)
    claims, gaps = claims_at(law.means), law.means[1:] - law.means[0]
    found = outcomes(claims, values)
    ends = [limits(values, arm, 0, 0.025) for arm in range(1, ARMS)]
    covered = [np.mean((low <= gap) & (gap <= high)) for (low, high), gap in zip(ends, gaps, strict=True)]
    sample = law.draw(np.random.default_rng(seed), 1, 100_000)[0]
    further = np.array([0.0, *FAR * (sample[1:] - sample[0]).std(axis=1)])
    far = outcomes(claims[: ARMS - 1], values + further[:, None])
    return {
        "false supported": float(np.mean((found > 0).any(axis=1))),
        "false refuted": float(np.mean((found < 0).any(axis=1))),
        "95 % covers": float(np.mean(covered)),
        "power": float(np.mean(far > 0)),
    }


def family_shares(size: int, far: bool, correlation: float, n: int, studies: int, seed: int) -> dict[str, float]:
    """The shares of studies with a false verdict among `size` claims against one arm; with `far` half are clear."""
    at_edge = size - (size // 2 if far else 0)
    means = np.array([0.0, *[1.0] * at_edge, *[101.0] * (size - at_edge)])[:, None]
    values = means + correlated(correlation, np.random.default_rng([seed, n, size]), (studies, size + 1, n))
    found = outcomes([ArrayClaim(arm, (0,), (1.0, np.inf)) for arm in range(1, size + 1)], values)[:, :at_edge]
    return {
        "false supported": float(np.mean((found > 0).any(axis=1))),
        "false refuted": float(np.mean((found < 0).any(axis=1))),
    }


def outcomes(claims: list[ArrayClaim], values: FloatArray) -> FloatArray:
    """The verdict on each claim in each study [studies, claims]: 1 supported, -1 refuted, 0 undecided."""
    decided = [_decide(claim, values) for claim in claims]
    p = np.stack([each for each, _ in decided], axis=1)
    sides = np.stack([side for _, side in decided], axis=1)
    order = np.argsort(p, axis=1, kind="stable")
    steps = ALPHA / (len(claims) - np.arange(len(claims)))
    taken = np.logical_and.accumulate(np.take_along_axis(p, order, axis=1) <= steps, axis=1)
    kept = np.zeros_like(p)
    np.put_along_axis(kept, order, taken.astype(float), axis=1)
    return kept * sides


def _decide(claim: ArrayClaim, values: FloatArray) -> tuple[FloatArray, FloatArray]:
    """The p-value of each study's verdict, and its side."""
    below, above = claim.region
    supports, refutes = parts_of_level(claim.region)
    all_inside = np.ones(len(values), dtype=bool)
    supported, refuted = np.zeros(len(values)), np.ones(len(values))
    for than in claim.than:
        mean, error = estimate(values, claim.arm, than)
        all_inside &= (below < mean) & (mean < above)
        inside, outside = np.zeros(len(values)), np.ones(len(values))
        for edge, sign in ((below, 1), (above, -1)):
            if np.isfinite(edge):
                p = _p_above(sign * mean, error, sign * edge, values[:, [claim.arm, than]])
                inside = np.maximum(inside, p)
                against = _p_above(-sign * mean, error, -sign * edge, values[:, [claim.arm, than]])
                outside = np.minimum(outside, against)
        supported, refuted = np.maximum(supported, inside), np.minimum(refuted, outside)
    supported, refuted = np.minimum(1, supported * supports), np.minimum(1, refuted * refutes * len(claim.than))
    return np.where(all_inside, supported, refuted), np.where(all_inside, 1.0, -1.0)


def _p_above(mean: FloatArray, error: FloatArray, x: float, pair: FloatArray) -> FloatArray:
    """One-sided p-values for “the true difference is above x”; of identical differences by their bounds, if any."""
    n = pair.shape[2]
    share = ((pair >= 0) & (pair <= 1)).all(axis=(1, 2))
    with np.errstate(divide="ignore", invalid="ignore"):
        student = special.stdtr(n - 1, (x - mean) / error)
        bounded = np.where(x > -1, ((x + 1) / (mean + 1)) ** n, 0.0)
    return np.where(error > 0, student, np.where(share & (mean > x), bounded, 1.0))


def limits(values: FloatArray, arm: int, than: int, tail: float) -> tuple[FloatArray, FloatArray]:
    """The limits of each study's difference, each with this error; open or bounded where all differences agree."""
    mean, error = estimate(values, arm, than)
    pair, n = values[:, [arm, than]], values.shape[2]
    half = special.stdtrit(n - 1, 1 - tail) * error
    share = ((pair >= 0) & (pair <= 1)).all(axis=(1, 2))
    low = np.where(share, -1 + (mean + 1) * tail ** (1 / n), -np.inf)
    high = np.where(share, 1 - (1 - mean) * tail ** (1 / n), np.inf)
    return np.where(error > 0, mean - half, low), np.where(error > 0, mean + half, high)


def estimate(values: FloatArray, arm: int, than: int) -> tuple[FloatArray, FloatArray]:
    """Mean and standard error of paired differences; an error of 0 where all of them agree."""
    difference = values[:, arm] - values[:, than]
    error = difference.std(axis=1, ddof=1) / np.sqrt(difference.shape[1])
    same = error <= 1e-12 * np.maximum(np.abs(difference).max(axis=1), 1e-300)
    return difference.mean(axis=1), np.where(same, 0.0, error)
