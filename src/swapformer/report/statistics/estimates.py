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
from scipy import optimize, special

FloatArray = NDArray[np.float64]


class Estimate(ABC):
    """A point estimate of a mean difference with exact duality of p-values and limits; `n` pairs stand behind it."""

    value: float
    n: int

    @abstractmethod
    def p_above(self, x: float) -> float:
        """One-sided p-value for “the true value is above `x`”."""

    @abstractmethod
    def p_below(self, x: float) -> float:
        """One-sided p-value for “the true value is below `x`”."""

    @abstractmethod
    def lower(self, tail: float) -> float:
        """The limit that the true value undercuts with probability at most `tail`."""

    @abstractmethod
    def upper(self, tail: float) -> float:
        """The limit that the true value exceeds with probability at most `tail`."""


@dataclass(frozen=True)
class Unknown(Estimate):
    """Fewer than two pairs: nothing can be said."""

    value: float = math.nan
    n: int = 0

    def p_above(self, x: float) -> float:
        return 1.0

    def p_below(self, x: float) -> float:
        return 1.0

    def lower(self, tail: float) -> float:
        return -math.inf

    def upper(self, tail: float) -> float:
        return math.inf


@dataclass(frozen=True)
class MeanEstimate(Estimate):
    """Student's t: `value ± t(tail, n - 1) · standard_error`, `standard_error > 0`."""

    value: float
    n: int
    standard_error: float

    def p_above(self, x: float) -> float:
        return float(special.stdtr(self.n - 1, (x - self.value) / self.standard_error))

    def p_below(self, x: float) -> float:
        return float(special.stdtr(self.n - 1, (self.value - x) / self.standard_error))

    def lower(self, tail: float) -> float:
        return self.value + float(special.stdtrit(self.n - 1, tail)) * self.standard_error

    def upper(self, tail: float) -> float:
        return self.value - float(special.stdtrit(self.n - 1, tail)) * self.standard_error


@dataclass(frozen=True)
class IdenticalEstimate(Estimate):
    """All n differences are the same number. A t interval would have no width, which would claim certainty from two
    seeds.

    Differences that cannot leave [`least`, `most`] are those of a metric that saturates: a rare other value, of which
    these seeds show none, moves the mean. A share q of them stays unseen with probability (1 - q)^n, so at a tail the
    share is up to 1 - tail^(1/n), and the mean as far away as that share at `least` or `most` takes it. Differences
    without bounds agree to the last digit only where two arms compute the same; the sign test is asked of them: n
    values on one side of x have probability 2^-n by chance.
    """

    value: float
    n: int
    least: float = -math.inf
    most: float = math.inf

    def p_above(self, x: float) -> float:
        if not self.value > x:
            return 1.0
        if self.least == -math.inf:
            return 2.0**-self.n
        return ((x - self.least) / (self.value - self.least)) ** self.n if x > self.least else 0.0

    def p_below(self, x: float) -> float:
        return self._mirrored().p_above(-x)

    def lower(self, tail: float) -> float:
        if self.least == -math.inf:
            return self.value if 2.0**-self.n <= tail else -math.inf
        return self.least + (self.value - self.least) * tail ** (1 / self.n)

    def upper(self, tail: float) -> float:
        return -self._mirrored().lower(tail)

    def _mirrored(self) -> IdenticalEstimate:
        return IdenticalEstimate(-self.value, self.n, -self.most, -self.least)


@dataclass(frozen=True)
class RateEstimate(Estimate):
    """A difference of two rates, paired by seed: each difference is -1, 0 or +1, and `total` is their sum over n seeds.

    Exact and unconditional: P(sum ≥ total) is maximised over all trinomial laws whose mean is x (McNemar's test for
    x = 0), so the error probabilities hold at any n and for any dependence between the arms.
    """

    total: int
    n: int

    @property
    def value(self) -> float:  # type: ignore[override]
        return self.total / self.n

    def p_above(self, x: float) -> float:
        return _largest_tail(self.n, self.total, x)

    def p_below(self, x: float) -> float:
        return _largest_tail(self.n, -self.total, -x)

    def lower(self, tail: float) -> float:
        return _rate_limit(self.n, self.total, tail)

    def upper(self, tail: float) -> float:
        return -_rate_limit(self.n, -self.total, tail)


@dataclass(frozen=True)
class Both(Estimate):
    """What two estimates of one difference both say: the larger p-values, the wider limits."""

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

    def p_below(self, x: float) -> float:
        return max(self.first.p_below(x), self.second.p_below(x))

    def lower(self, tail: float) -> float:
        return min(self.first.lower(tail), self.second.lower(tail))

    def upper(self, tail: float) -> float:
        return max(self.first.upper(tail), self.second.upper(tail))


@dataclass(frozen=True)
class Opened(Estimate):
    """An estimate whose limit below, above or on both sides is given up (see `evidence.mean_difference`)."""

    inner: Estimate
    below: bool
    above: bool

    @property
    def value(self) -> float:  # type: ignore[override]
        return self.inner.value

    @property
    def n(self) -> int:  # type: ignore[override]
        return self.inner.n

    def p_above(self, x: float) -> float:
        return 1.0 if self.below else self.inner.p_above(x)

    def p_below(self, x: float) -> float:
        return 1.0 if self.above else self.inner.p_below(x)

    def lower(self, tail: float) -> float:
        return -math.inf if self.below else self.inner.lower(tail)

    def upper(self, tail: float) -> float:
        return math.inf if self.above else self.inner.upper(tail)


def mean_estimate(differences: FloatArray, bounds: tuple[float, float] = (-math.inf, math.inf)) -> Estimate:
    """The estimate of the mean of paired differences, none of which can lie outside `bounds`."""
    n = len(differences)
    if n < 2:
        return Unknown(float(differences[0]) if n else math.nan, n)
    value, error = float(differences.mean()), float(differences.std(ddof=1)) / math.sqrt(n)
    if error <= 1e-12 * max(float(np.abs(differences).max()), 1e-300):
        return IdenticalEstimate(value, n, *bounds)
    return MeanEstimate(value, n, error)


def _largest_tail(n: int, total: int, mean: float) -> float:
    """max P(sum ≥ total) over n differences in {-1, 0, 1} whose mean is `mean` (larger means give larger tails)."""
    if mean >= 1 or total <= -n:
        return 1.0
    if mean < -1:
        return 0.0
    minus = np.linspace(max(0.0, -mean), (1 - mean) / 2, 129)
    plus = minus + mean
    law = np.stack([minus, 1 - plus - minus, plus], axis=-1)
    transform = np.fft.rfft(law, 2 * n + 1, axis=-1) ** n
    sums = np.fft.irfft(transform, 2 * n + 1, axis=-1)  # P(sum = k - n) at index k
    return float(np.clip(sums[:, total + n :].sum(axis=-1).max(), 0.0, 1.0))


def _rate_limit(n: int, total: int, tail: float) -> float:
    if _largest_tail(n, total, -1.0) >= tail:
        return -1.0
    if total == n and tail >= 1:
        return 1.0
    return float(optimize.brentq(lambda mean: _largest_tail(n, total, mean) - tail, -1.0, 1.0, xtol=1e-9))
