"""The baseline's loss over sizes: L(C) = E + A / C^α, with C the counted operations of a training.

Where sizes have as many tokens for a parameter this is what E + A / N^α + B / D^β (Hoffmann et al. 2022, arXiv
2203.15556) is to second order. For a given exponent E and A are least squares that are not negative, so that only α is
searched (variable projection).

A fit is refused below four sizes, where the loss does not fall with size, and where the residuals say that the form
does not hold: F = (Σ n r² / (points − 3)) / s² of the residuals r of means over n seeds, against the pooled variance s²
within points, beyond the 1 % point of its law.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy import special

from swapformer.report.statistics.estimates import FloatArray

FEWEST_SIZES = 4
REFUSED = 0.01
"""The p-value of the residuals below which the form is taken not to hold."""
_EXPONENTS = np.exp(np.linspace(math.log(0.02), math.log(3.0), 40))
_PARAMETERS = 3


class Unfit(Exception):
    """The reason why no law is fitted, in words."""


@dataclass(frozen=True)
class ScalingLaw:
    """E + a · (C / C₀)^−α."""

    floor: float
    coefficient: float
    exponent: float
    unit: float

    def loss(self, computation: float | FloatArray) -> FloatArray:
        """The loss at so much computation."""
        return self.floor + self.coefficient * (np.asarray(computation, dtype=float) / self.unit) ** -self.exponent

    def log_computation(self, loss: float) -> float:
        """The logarithm of the computation at which it has a loss; inf where it never falls so far."""
        rest = (loss - self.floor) / self.coefficient
        return math.log(self.unit) - math.log(rest) / self.exponent if rest > 0 else math.inf

    @property
    def text(self) -> str:
        """The formula with its numbers."""
        return f"{self.floor:.3g} + {self.coefficient:.3g} (C/{self.unit:.2g})^−{self.exponent:.2g}"


def fit(losses: FloatArray, computation: FloatArray) -> ScalingLaw:
    """The law of mean losses. Raises `Unfit` below four sizes and where the loss does not fall with size."""
    from scipy import optimize  # late: it takes long, and few reports have a ladder

    if len(set(np.round(np.log(computation), 6))) < FEWEST_SIZES:
        raise Unfit(f"a law of loss over size needs at least {FEWEST_SIZES} sizes, but has {len(losses)}")
    unit = float(np.exp(np.log(computation).mean()))
    x = np.log(computation / unit)
    at = int(np.argmin([_linear(losses, x, exponent)[1] for exponent in _EXPONENTS]))
    low, high = _EXPONENTS[max(at - 1, 0)], _EXPONENTS[min(at + 1, len(_EXPONENTS) - 1)]
    found = optimize.minimize_scalar(
        lambda exponent: _linear(losses, x, exponent)[1], bounds=(low, high), method="bounded", options={"xatol": 1e-9}
    )
    exponent = float(found.x)
    floor, coefficient = map(float, _linear(losses, x, exponent)[0])
    if not coefficient > 0:
        raise Unfit("the baseline's loss does not fall with size")
    return ScalingLaw(floor, coefficient, exponent, unit)


def _linear(losses: FloatArray, x: FloatArray, exponent: float) -> tuple[FloatArray, float]:
    """E and A for a given exponent, neither negative, and the root of the sum of squares."""
    from scipy import optimize

    found, norm = optimize.nnls(np.column_stack([np.ones(len(losses)), np.exp(-exponent * x)]), losses)
    return found, float(norm)


def misfit(law: ScalingLaw, seeds: FloatArray, computation: FloatArray) -> float:
    """The p-value of the residuals of a law for losses [points, seeds]; nan where nothing is left to judge by."""
    points, n = seeds.shape
    if points <= _PARAMETERS or n < 2:
        return math.nan
    residual = n * float(((seeds.mean(axis=1) - law.loss(computation)) ** 2).sum()) / (points - _PARAMETERS)
    within = float(seeds.var(axis=1, ddof=1).mean())
    if within <= 0:
        return 1.0 if residual <= 1e-18 else 0.0
    return float(special.fdtrc(points - _PARAMETERS, points * (n - 1), residual / within))
