"""Estimates of means of numbers that a bound makes skewed: rank correlations near ±1, and times cut off at the budget.

Student's t takes the spread that it sees for the true one. A few values close to a bound vary less than their law does,
so its limit on that side errs too often. Verdicts hold the wider one of it and the estimate here.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy import special

from swapformer.report.statistics.estimates import Estimate, FloatArray, MeanEstimate, WiderEstimate, mean_estimate

_STEEPEST = 40.0
"""The largest θ of a Mallows law that is looked at: its permutations are sorted but for e^-40."""


@dataclass(frozen=True)
class SkewedEstimate(MeanEstimate):
    """Student's t of a mean whose values have a skewness g, transformed as by Hall (1992, doi 10.2307/2291254).

    T + g T² / (3√n) + g² T³ / (27n) + g / (6√n) follows Student's law more closely than T; it grows with T, so that
    p-values and limits agree.
    """

    skewness: float = 0.0

    def p_above(self, x: float) -> float:
        t, root, g = (self.value - x) / self.standard_error, math.sqrt(self.n), self.skewness
        moved = t + g * t**2 / (3 * root) + g**2 * t**3 / (27 * self.n) + g / (6 * root)
        return float(special.stdtr(self.freedom, -moved))

    def lower(self, tail: float) -> float:
        moved, root, g = -float(special.stdtrit(self.freedom, tail)), math.sqrt(self.n), self.skewness
        cubed = 1 + g * (moved - g / (6 * root)) / root
        t = (math.cbrt(cubed) - 1) * 3 * root / g if abs(g) > 1e-6 else moved
        return self.value - t * self.standard_error

    def negate(self) -> SkewedEstimate:
        return SkewedEstimate(-self.value, self.n, self.standard_error, self.unpaired, -self.skewness)


def censored_estimate(differences: FloatArray, estimate: Estimate) -> Estimate:
    """The cautious one of an estimate of a mean of differences, as of censored times, and one for their skewness."""
    found = mean_estimate(differences)
    if not isinstance(found, MeanEstimate):
        return estimate
    centred = differences - differences.mean()
    skewness = float((centred**3).mean() / (centred**2).mean() ** 1.5)
    return WiderEstimate(estimate, SkewedEstimate(found.value, found.n, found.standard_error, None, skewness))


@dataclass(frozen=True)
class MallowsEstimate(Estimate):
    """The mean of Kendall's τ between an order of `arms` and their values, over n seeds with so many `inversions`.

    An inversion is a pair of arms in the wrong order; a tie is half of one. The law of an order with a mean τ is that
    of Mallows (1957, doi 10.1093/biomet/44.1-2.114), P ∝ exp(-θ · inversions): all orders are alike at θ = 0. Their
    sum over seeds is sufficient for θ, and its law is exact.
    """

    value: float
    n: int
    arms: int
    inversions: float

    @property
    def pairs(self) -> int:
        """Pairs of arms."""
        return self.arms * (self.arms - 1) // 2

    def p_above(self, x: float) -> float:
        if abs(x) >= 1:
            return float(x >= 1)
        low, high = -_STEEPEST, _STEEPEST
        for _ in range(80):
            middle = (low + high) / 2
            low, high = (middle, high) if _mean_tau(self.arms, middle) < x else (low, middle)
        return self.tail((low + high) / 2)

    def lower(self, tail: float) -> float:
        return _limit(self, tail)

    def negate(self) -> MallowsEstimate:
        return MallowsEstimate(-self.value, self.n, self.arms, self.n * self.pairs - self.inversions)

    def tail(self, theta: float) -> float:
        """P(at most as many inversions) under the law with this θ."""
        law = _law(self.arms, self.n, theta)
        return min(1.0, float(law[: math.ceil(self.inversions - 1e-9) + 1].sum()))


@lru_cache(maxsize=1024)
def _limit(estimate: MallowsEstimate, tail: float) -> float:
    """The smallest mean τ whose p-value reaches the tail."""
    low, high = -_STEEPEST, _STEEPEST
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if estimate.tail(middle) < tail else (low, middle)
    return -1.0 if low == -_STEEPEST else _mean_tau(estimate.arms, (low + high) / 2)


def trend_estimate(taus: FloatArray, scores: FloatArray, arms: int) -> Estimate:
    """The estimate of a mean τ from that of each seed; `scores`: pairs in the right order less those in the wrong."""
    found = mean_estimate(taus, (-1.0, 1.0))
    if len(taus) < 2:
        return found
    pairs = arms * (arms - 1) / 2
    return WiderEstimate(found, MallowsEstimate(found.value, len(taus), arms, float((pairs - scores).sum()) / 2))


def _insertion(places: int, theta: float) -> FloatArray:
    """The number of earlier arms that the next arm is on the wrong side of: P(0 … places - 1)."""
    weights = -theta * np.arange(places)
    law = np.exp(weights - weights.max())
    return np.asarray(law / law.sum())


@lru_cache(maxsize=4096)
def _mean_tau(arms: int, theta: float) -> float:
    inversions = sum(float(_insertion(places, theta) @ np.arange(places)) for places in range(2, arms + 1))
    return 1 - 4 * inversions / (arms * (arms - 1))


@lru_cache(maxsize=512)
def _law(arms: int, n: int, theta: float) -> FloatArray:
    """The law of the inversions in n orders of so many arms."""
    one = np.ones(1)
    for places in range(2, arms + 1):
        one = np.convolve(one, _insertion(places, theta))
    total = np.ones(1)
    for bit in bin(n)[2:]:
        total = np.convolve(total, total)
        total = np.convolve(total, one) if bit == "1" else total
    return total
