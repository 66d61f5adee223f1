"""Estimates of a mean difference, whose p-values and confidence limits agree exactly.

`lower(tail) > x` holds if and only if `p_above(x) < tail`, and the same for `upper` and `p_below`. Verdicts need
nothing else, so a verdict and the interval shown with it cannot contradict each other.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
Region = tuple[float, float]
"""An open interval of true differences, such as the one where a claim holds."""
UNBOUNDED: Region = (-math.inf, math.inf)


class Estimate(ABC):
    """A point estimate of a mean difference with exact duality of p-values and limits; `n` pairs stand behind it.

    A subclass gives one side; the other is that side of the negated estimate, the one of minus the difference.
    """

    value: float
    n: int

    @abstractmethod
    def p_above(self, x: float) -> float:
        """One-sided p-value for “the true value is above `x`”."""

    @abstractmethod
    def lower(self, tail: float) -> float:
        """The limit that the true value undercuts with probability at most `tail`."""

    @abstractmethod
    def negate(self) -> Estimate:
        """The estimate of minus the same difference."""

    @property
    def paired(self) -> bool:
        """Whether it is an estimate from differences that are paired by seed, not from two independent means."""
        return True

    def p_below(self, x: float) -> float:
        """One-sided p-value for “the true value is below `x`”."""
        return self.negate().p_above(-x)

    def upper(self, tail: float) -> float:
        """The limit that the true value exceeds with probability at most `tail`."""
        return -self.negate().lower(tail)

    @property
    def limits(self) -> tuple[float, float]:
        """Both limits of the 95 % interval, not corrected for several comparisons."""
        return self.lower(0.025), self.upper(0.025)


@dataclass(frozen=True)
class UnknownEstimate(Estimate):
    """The estimate from fewer than two pairs: nothing can be said of the difference."""

    value: float = math.nan
    n: int = 0

    def p_above(self, x: float) -> float:
        return 1.0

    def lower(self, tail: float) -> float:
        return -math.inf

    def negate(self) -> UnknownEstimate:
        return UnknownEstimate(-self.value, self.n)


@dataclass(frozen=True)
class SameModelEstimate(UnknownEstimate):
    """The estimate from arms that trained the same model: their difference is 0 with any seed, and says nothing."""

    value: float = 0.0


@dataclass(frozen=True)
class MeanEstimate(Estimate):
    """Student's t: `value ± t(tail, freedom) · standard_error`, `standard_error > 0`.

    `unpaired`: the degrees of freedom of a difference of two means; None for a mean of paired differences, n - 1.
    """

    value: float
    n: int
    standard_error: float
    unpaired: float | None = None

    @property
    def freedom(self) -> float:
        """The degrees of freedom."""
        return self.n - 1 if self.unpaired is None else self.unpaired

    @property
    def paired(self) -> bool:
        return self.unpaired is None

    def p_above(self, x: float) -> float:
        from scipy import special  # late: claims are read without

        return float(special.stdtr(self.freedom, (x - self.value) / self.standard_error))

    def lower(self, tail: float) -> float:
        from scipy import special  # late: claims are read without

        return self.value + float(special.stdtrit(self.freedom, tail)) * self.standard_error

    def negate(self) -> MeanEstimate:
        return MeanEstimate(-self.value, self.n, self.standard_error, self.unpaired)


@dataclass(frozen=True)
class IdenticalEstimate(Estimate):
    """The estimate from n differences that are all the same number.

    A t interval would have no width, which would claim certainty from two seeds. Differences that cannot leave
    [`least`, `most`] are those of a metric that saturates: a rare other value, of which these seeds show none, moves
    the mean. A share q of them stays unseen with probability (1 - q)^n, so at a tail the share is up to 1 - tail^(1/n),
    and the mean as far away as that share at `least` or `most` takes it. Where differences have no bounds, seeds that
    never differ say nothing of the mean.
    """

    value: float
    n: int
    least: float = -math.inf
    most: float = math.inf

    def p_above(self, x: float) -> float:
        if not self.value > x or self.least == -math.inf:
            return 1.0
        return ((x - self.least) / (self.value - self.least)) ** self.n if x > self.least else 0.0

    def lower(self, tail: float) -> float:
        if self.least == -math.inf:
            return -math.inf
        return self.least + (self.value - self.least) * tail ** (1 / self.n)

    def negate(self) -> IdenticalEstimate:
        return IdenticalEstimate(-self.value, self.n, -self.most, -self.least)


@dataclass(frozen=True)
class ExactEstimate(Estimate):
    """A number that no seed changes: arithmetic decides, without error."""

    value: float
    n: int

    def p_above(self, x: float) -> float:
        return 0.0 if self.value > x else 1.0

    def lower(self, tail: float) -> float:
        return self.value

    def negate(self) -> ExactEstimate:
        return ExactEstimate(-self.value, self.n)


@dataclass(frozen=True)
class ShareEstimate(Estimate):
    """A share of seeds: `count` of n, with the exact binomial limits of Clopper and Pearson (1934)."""

    count: int
    n: int

    @property
    def value(self) -> float:  # type: ignore[override]
        return self.count / self.n

    def p_above(self, x: float) -> float:
        from scipy import special  # late: claims are read without

        if self.count == 0 or x >= 1:
            return 1.0
        return 0.0 if x < 0 else float(special.bdtrc(self.count - 1, self.n, x))

    def lower(self, tail: float) -> float:
        from scipy import special  # late: claims are read without

        return float(special.betaincinv(self.count, self.n - self.count + 1, tail)) if self.count else 0.0

    def p_below(self, x: float) -> float:
        return ShareEstimate(self.n - self.count, self.n).p_above(1 - x)

    def upper(self, tail: float) -> float:
        return 1 - ShareEstimate(self.n - self.count, self.n).lower(tail)

    def negate(self) -> Estimate:
        raise NotImplementedError("both sides of a share are its own")


@dataclass(frozen=True)
class WiderEstimate(Estimate):
    """The cautious one of two estimates of the same difference: the larger p-values, the wider limits."""

    first: Estimate
    second: Estimate

    @property
    def value(self) -> float:  # type: ignore[override]
        return self.first.value

    @property
    def n(self) -> int:  # type: ignore[override]
        return self.first.n

    def p_above(self, x: float) -> float:
        return max(self.first.p_above(x), self.second.p_above(x))

    def lower(self, tail: float) -> float:
        return min(self.first.lower(tail), self.second.lower(tail))

    def negate(self) -> WiderEstimate:
        return WiderEstimate(self.first.negate(), self.second.negate())


@dataclass(frozen=True)
class AroundEstimate(Estimate):
    """An estimate made of another one: of the same value and seeds, with other limits."""

    inner: Estimate

    @property
    def value(self) -> float:  # type: ignore[override]
        return self.inner.value

    @property
    def n(self) -> int:  # type: ignore[override]
        return self.inner.n


@dataclass(frozen=True)
class BiasedEstimate(AroundEstimate):
    """An estimate that may be off by up to `bias` on either side, in addition to its error over seeds."""

    bias: float

    def p_above(self, x: float) -> float:
        return self.inner.p_above(x + self.bias)

    def lower(self, tail: float) -> float:
        return self.inner.lower(tail) - self.bias

    def negate(self) -> BiasedEstimate:
        return BiasedEstimate(self.inner.negate(), self.bias)


@dataclass(frozen=True)
class OpenEstimate(AroundEstimate):
    """An estimate whose limit below, above or on both sides is given up (see `Evidence.mean_difference`)."""

    below: bool
    above: bool

    def p_above(self, x: float) -> float:
        return 1.0 if self.below else self.inner.p_above(x)

    def lower(self, tail: float) -> float:
        return -math.inf if self.below else self.inner.lower(tail)

    def p_below(self, x: float) -> float:
        return 1.0 if self.above else self.inner.p_below(x)

    def upper(self, tail: float) -> float:
        return math.inf if self.above else self.inner.upper(tail)

    def negate(self) -> OpenEstimate:
        return OpenEstimate(self.inner.negate(), self.above, self.below)


def mean_estimate(differences: FloatArray, bounds: Region = UNBOUNDED) -> Estimate:
    """The estimate of the mean of paired differences, none of which can lie outside `bounds`."""
    n = len(differences)
    if n < 2:
        return UnknownEstimate(float(differences[0]) if n else math.nan, n)
    value, error = float(differences.mean()), float(differences.std(ddof=1)) / math.sqrt(n)
    if error <= 1e-12 * max(float(np.abs(differences).max()), 1e-300):
        return IdenticalEstimate(value, n, *bounds)
    return MeanEstimate(value, n, error)


FEWEST_FOR_WELCH = 5
"""Seeds on each side from which on Welch's degrees of freedom hold; below, they err up to five times too often."""


def unpaired_estimate(x: FloatArray, y: FloatArray) -> Estimate:
    """The estimate of mean(x) - mean(y) from independent samples: Welch's, from fewer than five with min(n) - 1."""
    fewest = min(len(x), len(y))
    if fewest < 2 or not max(np.ptp(x), np.ptp(y)) > 0:
        return UnknownEstimate(float(x.mean() - y.mean()) if fewest else math.nan, fewest)
    a, b = float(x.var(ddof=1)) / len(x), float(y.var(ddof=1)) / len(y)
    freedom = (a + b) ** 2 / (a**2 / (len(x) - 1) + b**2 / (len(y) - 1))
    freedom = freedom if fewest >= FEWEST_FOR_WELCH else fewest - 1.0
    return MeanEstimate(float(x.mean() - y.mean()), fewest, math.sqrt(a + b), freedom)


def edges(region: Region) -> int:
    """The number of finite edges of a region."""
    return sum(math.isfinite(edge) for edge in region)


def region_p_values(estimate: Estimate, region: Region) -> tuple[float, float]:
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
