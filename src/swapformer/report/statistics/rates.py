"""The difference of two rates that are measured with the same seeds, by an exact unconditional test."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy import special

from swapformer.report.statistics.estimates import Estimate, FloatArray

_TIE = 1e-9
"""Scores that differ by less are equal."""


@dataclass(frozen=True)
class RateEstimate(Estimate):
    """A difference of two rates over `n` seeds: `gained` of them say yes only in the arm, `lost` only in the other.

    The test orders the outcomes (gained, lost) by Tango's score (1998, doi 10.1002/(SICI)1097-0258(19980430)17:8<891),
    the difference less x over its standard error as it would be if x were true. Its p-value is the probability of an
    outcome that scores as high, maximised over all laws whose difference is x (the share of `lost` is free), and then
    over all x' up to x, since the score's own p-value may fall where x grows. So it errs with at most the stated
    probability, at any n and for any dependence between the arms.
    """

    gained: int
    lost: int
    n: int

    @property
    def value(self) -> float:  # type: ignore[override]
        return (self.gained - self.lost) / self.n

    def p_above(self, x: float) -> float:
        if x >= 1 or self.lost == self.n:
            return 1.0
        if x <= -1:
            return 0.0
        if self.gained == self.n:
            return ((1 + x) / 2) ** self.n
        return _p_value(_Test(self.n, self.gained, self.lost), x)

    def lower(self, tail: float) -> float:
        if self.lost == self.n:
            return -1.0
        if self.gained == self.n:
            return 2 * tail ** (1 / self.n) - 1
        return _limit(_Test(self.n, self.gained, self.lost), tail)

    def negate(self) -> RateEstimate:
        return RateEstimate(self.lost, self.gained, self.n)


@dataclass(frozen=True)
class _Test:
    """The test of one observed outcome."""

    n: int
    gained: int
    lost: int

    def ahead(self, x: FloatArray) -> FloatArray:
        """The lead of each outcome's score over that of the observed one, [outcomes, x]."""
        counts, _ = _outcomes(self.n)
        gained, lost = counts[:, :1], counts[:, 1:2]
        own = _scores(self.n, np.array([[self.gained]]), np.array([[self.lost]]), x)
        return _scores(self.n, gained, lost, x) - own

    def largest_tail(self, x: float) -> float:
        """The largest P(an outcome scores as high as the observed one) over all laws whose difference is `x`.

        The free share is searched on a grid that is refined twice around its best point, to steps below 1e-4.
        """
        inside = self.ahead(np.array([x]))[:, 0] >= -_TIE
        counts, log_ways = (part[inside] for part in _outcomes(self.n))
        low, high, best = max(0.0, -x), (1 - x) / 2, 0.0
        for points in (129, 33, 33):
            lost = np.linspace(low, high, points)
            law = np.stack([lost + x, lost, 1 - 2 * lost - x])
            tails = np.exp(counts @ np.log(np.maximum(law, 1e-300)) + log_ways[:, None]).sum(axis=0)
            at = int(tails.argmax())
            best = max(best, float(tails[at]))
            low, high = lost[max(at - 1, 0)], lost[min(at + 1, points - 1)]
        return min(best, 1.0)


@lru_cache(maxsize=64)
def _outcomes(n: int) -> tuple[FloatArray, FloatArray]:
    """All outcomes as rows (gained, lost, neither), and the logarithm of the ways to each."""
    gained, lost = (side.ravel() for side in np.indices((n + 1, n + 1)))
    counts = np.stack([gained, lost, n - gained - lost], axis=1)[gained + lost <= n].astype(float)
    return counts, special.gammaln(n + 1) - special.gammaln(counts + 1).sum(axis=1)


def _scores(n: int, gained: FloatArray, lost: FloatArray, x: FloatArray) -> FloatArray:
    """Tango's score of outcomes at differences x in (-1, 1): (gained - lost - nx) / √(n (2q + x(1 - x))).

    q is the likeliest share of `lost` if the difference is x: the larger root of 2n q² + b q = lost · x(1 - x).
    """
    b = (2 * n - gained + lost) * x - gained - lost
    q = (np.sqrt(np.maximum(b**2 + 8 * n * lost * x * (1 - x), 0.0)) - b) / (4 * n)
    variance = n * (2 * q + x * (1 - x))
    distance = gained - lost - n * x
    found = distance / np.sqrt(np.maximum(variance, 1e-12))
    return np.where(np.abs(distance) < _TIE, 0.0, found)


@lru_cache(maxsize=1024)
def _drops(test: _Test) -> tuple[FloatArray, FloatArray]:
    """The x at which an outcome falls behind the observed one, ascending, and the largest p-value up to each.

    Between two of them the p-value grows with x: the outcomes ahead can only become more, and likelier.
    """
    x = np.linspace(-1, 1, 402)[1:-1]
    ahead = test.ahead(x) >= 0
    outcomes, cells = np.nonzero(ahead[:, :-1] & ~ahead[:, 1:])
    low, high = x[cells], x[cells + 1]
    counts, _ = _outcomes(test.n)
    gained, lost = counts[outcomes, 0], counts[outcomes, 1]
    for _ in range(40):
        middle = (low + high) / 2
        own = _scores(test.n, np.array(test.gained), np.array(test.lost), middle)
        still = _scores(test.n, gained, lost, middle) - own >= 0
        low, high = np.where(still, middle, low), np.where(still, high, middle)
    drops = np.unique(low)
    return drops, np.maximum.accumulate([0.0, *map(test.largest_tail, drops)])[1:]


@lru_cache(maxsize=4096)
def _p_value(test: _Test, x: float) -> float:
    drops, highest = _drops(test)
    before = int(np.searchsorted(drops, x, side="right"))
    return max(test.largest_tail(x), float(highest[before - 1]) if before else 0.0)


@lru_cache(maxsize=4096)
def _limit(test: _Test, tail: float) -> float:
    """The smallest difference whose p-value reaches the tail."""
    drops, highest = _drops(test)
    first = int(np.searchsorted(highest, tail))
    low = float(drops[first - 1]) if first else -1.0
    high = float(drops[first]) if first < len(drops) else 1.0
    while high - low > 1e-10:
        middle = (low + high) / 2
        low, high = (low, middle) if test.largest_tail(middle) >= tail else (middle, high)
    return high
