"""Estimates of a mean difference: a number with its one-sided limits, at any error.

A p-value is the error at which a limit meets a number, so a verdict and the interval shown with it cannot contradict
each other. Three things are known of seeds: Student's t of a mean, exact limits of a share, and arithmetic.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
Region = tuple[float, float]
"""An open interval of true differences, such as the one where a claim holds."""
UNBOUNDED: Region = (-math.inf, math.inf)
BoolArray = NDArray[np.bool_]
FEWEST_FOR_WELCH = 5
"""Seeds on each side from which on Welch's degrees of freedom hold; below, they err up to five times too often."""
_LEAST = 1e-40
"""The smallest p-value but 0."""


class Estimate(ABC):
    """A point estimate of a mean difference with its limits; `n` pairs of seeds stand behind it."""

    value: float
    n: int

    @abstractmethod
    def lower(self, tail: float) -> float:
        """The limit that the true value undercuts with probability at most `tail`; it grows with `tail`."""

    @abstractmethod
    def upper(self, tail: float) -> float:
        """The limit that the true value exceeds with probability at most `tail`; it falls with `tail`."""

    @property
    def paired(self) -> bool:
        """Whether it is an estimate from differences that are paired by seed, not from two independent means."""
        return True

    @property
    def limits(self) -> tuple[float, float]:
        """Both limits of the 95 % interval, not corrected for several comparisons."""
        return self.lower(0.025), self.upper(0.025)

    def p_above(self, x: float) -> float:
        """One-sided p-value for “the true value is above `x`”."""
        return _least_tail(lambda tail: self.lower(tail) > x)

    def p_below(self, x: float) -> float:
        """One-sided p-value for “the true value is below `x`”."""
        return _least_tail(lambda tail: self.upper(tail) < x)


def _least_tail(excludes: Callable[[float], bool]) -> float:
    """The smallest error at which a limit excludes a number, by bisection of its logarithm; 1 if none does."""
    if not excludes(1.0):
        return 1.0
    if excludes(_LEAST):
        return 0.0
    low, high = math.log(_LEAST), 0.0
    while high - low > 1e-12:
        middle = (low + high) / 2
        low, high = (low, middle) if excludes(math.exp(middle)) else (middle, high)
    return math.exp(high)


@dataclass(frozen=True)
class UnknownEstimate(Estimate):
    """The estimate from fewer than two pairs: nothing can be said of the difference."""

    value: float = math.nan
    n: int = 0

    def lower(self, tail: float) -> float:
        return -math.inf

    def upper(self, tail: float) -> float:
        return math.inf


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

    def lower(self, tail: float) -> float:
        return self.value + self._quantile(tail) * self.standard_error

    def upper(self, tail: float) -> float:
        return self.value - self._quantile(tail) * self.standard_error

    def p_above(self, x: float) -> float:
        from scipy import special

        return float(special.stdtr(self.freedom, (x - self.value) / self.standard_error))

    def p_below(self, x: float) -> float:
        from scipy import special

        return float(special.stdtr(self.freedom, (self.value - x) / self.standard_error))

    def _quantile(self, tail: float) -> float:
        from scipy import special  # late: claims are read without

        return float(special.stdtrit(self.freedom, tail))


def errors_together(over_seeds: float, freedom: float, item_error: float, items: int) -> tuple[float, float]:
    """The standard error of both together, and Satterthwaite's degrees of freedom."""
    total = over_seeds**2 + item_error**2
    return math.sqrt(total), total**2 / (over_seeds**4 / freedom + item_error**4 / (items - 1))


@dataclass(frozen=True)
class ItemsEstimate(MeanEstimate):
    """A mean over seeds with the error over evaluated items added, which more seeds do not make smaller.

    `over_seeds`: the mean with its own error; `item_error`: the standard error over the `items`.
    """

    over_seeds: MeanEstimate = MeanEstimate(math.nan, 0, math.nan)
    item_error: float = 0.0
    items: int = 0

    @property
    def paired(self) -> bool:
        return self.over_seeds.paired


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

    def lower(self, tail: float) -> float:
        return self._towards(self.least, tail)

    def upper(self, tail: float) -> float:
        return self._towards(self.most, tail)

    def _towards(self, bound: float, tail: float) -> float:
        return bound if math.isinf(bound) else bound + (self.value - bound) * tail ** (1 / self.n)


@dataclass(frozen=True)
class ExactEstimate(Estimate):
    """A number that no seed changes: arithmetic decides, without error."""

    value: float
    n: int

    def lower(self, tail: float) -> float:
        return self.value

    def upper(self, tail: float) -> float:
        return self.value


def exact_estimate(value: float, size: float, region: Region, n: int) -> ExactEstimate:
    """The number `value`, computed from numbers of this `size` together; an edge of the region where it is one.

    0.8 − 0.7 is 0.1, though rounding makes it more, and 0.3 − 0.2 less.
    """
    edges = [edge for edge in region if abs(value - edge) <= 1e-15 * size]
    return ExactEstimate(edges[0] if edges else value, n)


@dataclass(frozen=True)
class ShareEstimate(Estimate):
    """A share of seeds, `count` of n, less the share `other` of n over the same seeds, if there is one.

    Each has the exact binomial limits of Clopper and Pearson (1934); of two, each takes half of the error, so that the
    difference holds however the seeds of two arms depend on each other.
    """

    count: float
    n: int
    other: float | None = None

    @property
    def value(self) -> float:  # type: ignore[override]
        return (self.count - (self.other or 0)) / self.n

    def lower(self, tail: float) -> float:
        if self.other is None:
            return _least_share(self.count, self.n, tail)
        return _least_share(self.count, self.n, tail / 2) - _most_share(self.other, self.n, tail / 2)

    def upper(self, tail: float) -> float:
        if self.other is None:
            return _most_share(self.count, self.n, tail)
        return _most_share(self.count, self.n, tail / 2) - _least_share(self.other, self.n, tail / 2)

    def p_above(self, x: float) -> float:
        return super().p_above(x) if self.other is not None else _p_above(self.count, self.n, x)

    def p_below(self, x: float) -> float:
        return super().p_below(x) if self.other is not None else _p_above(self.n - self.count, self.n, 1 - x)


def _p_above(count: float, n: int, share: float) -> float:
    """P(`count` or more of n) where each has this share: in closed form, so that .2³ is .008 and no digit more."""
    from scipy import special

    if share <= 0 or share >= 1 or not count:
        return float(share >= 1 or (share >= 0 and not count))
    return float(special.betainc(count, n - count + 1, share))


def _least_share(count: float, n: int, tail: float) -> float:
    from scipy import special  # late: claims are read without

    return float(special.betaincinv(count, n - count + 1, tail)) if count else 0.0


def _most_share(count: float, n: int, tail: float) -> float:
    return 1 - _least_share(n - count, n, tail)


@dataclass(frozen=True)
class _Wrapped(Estimate):
    """An estimate made of another."""

    inner: Estimate

    @property
    def value(self) -> float:  # type: ignore[override]
        return self.inner.value

    @property
    def n(self) -> int:  # type: ignore[override]
        return self.inner.n

    @property
    def paired(self) -> bool:
        return self.inner.paired


@dataclass(frozen=True)
class WiderEstimate(_Wrapped):
    """The cautious one of two estimates of the same difference."""

    second: Estimate

    def lower(self, tail: float) -> float:
        return min(self.inner.lower(tail), self.second.lower(tail))

    def upper(self, tail: float) -> float:
        return max(self.inner.upper(tail), self.second.upper(tail))


@dataclass(frozen=True)
class FactorEstimate(_Wrapped):
    """The estimate of a factor from that of its logarithm."""

    @property
    def value(self) -> float:  # type: ignore[override]
        return exp(self.inner.value)

    def lower(self, tail: float) -> float:
        return exp(self.inner.lower(tail))

    def upper(self, tail: float) -> float:
        return exp(self.inner.upper(tail))


def factor(log: Estimate) -> Estimate:
    """The estimate of a factor from that of its logarithm."""
    return UnknownEstimate(exp(log.value), log.n) if isinstance(log, UnknownEstimate) else FactorEstimate(log)


def exp(x: float) -> float:
    """e to the power of x; infinite where that is too large, nan for nan."""
    return math.exp(x) if x < 700 else math.inf if x == x else math.nan


@dataclass(frozen=True)
class AroundEstimate(_Wrapped):
    """An estimate with limits further out: by a possible `bias` on either side, and without one where it is `open`.

    `open`: whether the limit below and the one above are given up (see `Evidence.mean_difference`).
    """

    open: tuple[bool, bool] = (False, False)
    bias: float = 0.0

    def lower(self, tail: float) -> float:
        return -math.inf if self.open[0] else self.inner.lower(tail) - self.bias

    def upper(self, tail: float) -> float:
        return math.inf if self.open[1] else self.inner.upper(tail) + self.bias


def opened(estimate: Estimate, below: bool, above: bool) -> Estimate:
    """The estimate without its limit below, above or both; as it is where neither is given up."""
    return AroundEstimate(estimate, (below, above)) if below or above else estimate


def mean_estimate(differences: FloatArray, bounds: Region = UNBOUNDED) -> Estimate:
    """The estimate of the mean of paired differences, none of which can lie outside `bounds`."""
    n = len(differences)
    if n < 2:
        return UnknownEstimate(float(differences[0]) if n else math.nan, n)
    value, error = float(differences.mean()), float(differences.std(ddof=1)) / math.sqrt(n)
    if error <= 1e-12 * max(float(np.abs(differences).max()), 1e-300):
        return IdenticalEstimate(value, n, *bounds)
    return MeanEstimate(value, n, error)


def rates_estimate(here: BoolArray, there: BoolArray) -> Estimate:
    """The estimate of a difference of two rates, from what is counted with each seed of one arm and of the other."""
    found = mean_estimate(here.astype(float) - there, (-1.0, 1.0))
    return ShareEstimate(int(here.sum()), len(here), int(there.sum())) if isinstance(found, MeanEstimate) else found


def unpaired_estimate(x: FloatArray, y: FloatArray) -> Estimate:
    """The estimate of mean(x) - mean(y) from independent samples: Welch's, from fewer than five with min(n) - 1."""
    fewest = min(len(x), len(y))
    if fewest < 2 or not max(np.ptp(x), np.ptp(y)) > 0:
        return UnknownEstimate(float(x.mean() - y.mean()) if fewest else math.nan, fewest)
    a, b = float(x.var(ddof=1)) / len(x), float(y.var(ddof=1)) / len(y)
    if not (a + b) ** 2 > 0 or not a**2 + b**2 > 0:  # too small for float64
        return UnknownEstimate(float(x.mean() - y.mean()), fewest)
    freedom = (a + b) ** 2 / (a**2 / (len(x) - 1) + b**2 / (len(y) - 1))
    freedom = freedom if fewest >= FEWEST_FOR_WELCH else fewest - 1.0
    return MeanEstimate(float(x.mean() - y.mean()), fewest, math.sqrt(a + b), freedom)


def parts_of_level(region: Region) -> tuple[int, int]:
    """Into how many parts the level of a claim is divided for the end that supports it, and for one that refutes it.

    Outside a region with two edges either edge may refute. At an edge of 0 both verdicts can be wrong without any
    difference, since a refuted “better” is read as “worse”: each end has half.
    """
    finite = [edge for edge in region if math.isfinite(edge)]
    if len(finite) == 2:
        return 1, 2
    return (2, 2) if finite == [0.0] else (1, 1)


def is_within(p: float, level: float) -> bool:
    """Whether a p-value is at most a level; at equality too, which rounding would leave to chance."""
    return p <= level * (1 + 1e-9)


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
