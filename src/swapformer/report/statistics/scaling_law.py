"""The baseline's loss over sizes: L(N, D) = E + A / N^α + B / D^β (Hoffmann et al. 2022, arXiv 2203.15556).

N is the number of parameters, D that of training tokens. For given exponents E, A and B are least squares that are not
negative, so that only α and β are searched (variable projection). Where all points lie on one line of log N and log D,
as at so many tokens per parameter, the two terms cannot be told apart: one power of the computation C is fitted along
that line, L(C) = E + A / C^α, which is what the surface is there to second order.

A fit is refused below four sizes, where the loss does not fall with size, and where the residuals say that the form
does not hold: F = (Σ n r² / (points − parameters)) / s² of the residuals r of means over n seeds, against the pooled
variance s² within points, beyond the 1 % point of its law.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import optimize, stats

from swapformer.report.statistics.estimates import FloatArray

FEWEST_SIZES = 4
REFUSED = 0.01
"""The p-value of the residuals below which the form is taken not to hold."""
_EXPONENTS = np.exp(np.linspace(math.log(0.02), math.log(3.0), 40))
_COLLINEAR = 1e-3
"""The smallest singular value of centred log N and log D, over the largest, that tells a surface from a line."""


class Unfit(Exception):
    """The reason why no law is fitted, in words."""


@dataclass(frozen=True)
class ScalingLaw:
    """E + Σ a · (x / x₀)^−α over the columns x of `scales`; `line`: one power of the computation, along a line."""

    floor: float
    coefficients: tuple[float, ...]
    exponents: tuple[float, ...]
    units: tuple[float, ...]
    line: bool

    def loss(self, *x: float | FloatArray) -> FloatArray:
        """The loss at so much computation (`line`), or at N and D."""
        total = np.asarray(self.floor, dtype=float)
        for value, a, exponent, unit in zip(x, self.coefficients, self.exponents, self.units, strict=True):
            total = total + a * (np.asarray(value, dtype=float) / unit) ** -exponent
        return total

    def log_computation(self, loss: float) -> float:
        """Of a `line`: log C at which it has a loss; inf where it never falls so far."""
        rest = (loss - self.floor) / self.coefficients[0]
        return math.log(self.units[0]) - math.log(rest) / self.exponents[0] if rest > 0 else math.inf

    @property
    def text(self) -> str:
        """The formula with its numbers."""
        names = ("C",) if self.line else ("N", "D")
        terms = [
            f"{a:.3g} ({name}/{unit:.2g})^−{exponent:.2g}"
            for name, a, exponent, unit in zip(names, self.coefficients, self.exponents, self.units, strict=True)
        ]
        return " + ".join([f"{self.floor:.3g}", *terms])


def is_line(sizes: FloatArray, tokens: FloatArray) -> bool:
    """Whether log N and log D of all points are on one line, so that one power is all that can be fitted."""
    if not (np.isfinite(sizes).all() and np.isfinite(tokens).all()):
        return True
    logs = np.log(np.column_stack([sizes, tokens]))
    singular = np.linalg.svd(logs - logs.mean(axis=0), compute_uv=False)
    return bool(singular[-1] <= _COLLINEAR * max(singular[0], 1e-300)) or len(sizes) < 6


def fit(losses: FloatArray, sizes: FloatArray, tokens: FloatArray, computation: FloatArray) -> ScalingLaw:
    """The law of mean losses at points (N, D, C). Raises `Unfit` below four sizes and where nothing falls with size."""
    if len(set(np.round(np.log(computation), 6))) < FEWEST_SIZES or len(losses) < FEWEST_SIZES:
        raise Unfit(f"a law of loss over size needs at least {FEWEST_SIZES} sizes, but has {len(losses)}")
    line = is_line(sizes, tokens)
    columns = [computation] if line else [sizes, tokens]
    units = tuple(float(np.exp(np.log(column).mean())) for column in columns)
    scaled = [np.log(column / unit) for column, unit in zip(columns, units, strict=True)]
    exponents = _search(losses, scaled)
    floor, *coefficients = _linear(losses, scaled, exponents)[0]
    if not sum(coefficients) > 0:
        raise Unfit("the baseline's loss does not fall with size")
    return ScalingLaw(float(floor), tuple(map(float, coefficients)), exponents, units, line)


def _linear(losses: FloatArray, scaled: Sequence[FloatArray], exponents: Sequence[float]) -> tuple[FloatArray, float]:
    """E and the coefficients for given exponents, none negative, and the root of the sum of squares."""
    terms = [np.exp(-exponent * x) for exponent, x in zip(exponents, scaled, strict=True)]
    found, norm = optimize.nnls(np.column_stack([np.ones(len(losses)), *terms]), losses)
    return found, float(norm)


def _search(losses: FloatArray, scaled: Sequence[FloatArray]) -> tuple[float, ...]:
    """The exponents of the least squares: the best of a grid, refined between its neighbours."""

    def norm(exponents: Sequence[float]) -> float:
        return _linear(losses, scaled, exponents)[1]

    if len(scaled) == 1:
        at = int(np.argmin(_profile(losses, scaled[0])))
        low, high = _EXPONENTS[max(at - 1, 0)], _EXPONENTS[min(at + 1, len(_EXPONENTS) - 1)]
        found = optimize.minimize_scalar(
            lambda e: norm([e]), bounds=(low, high), method="bounded", options={"xatol": 1e-9}
        )
        return (float(found.x),)
    coarse = _EXPONENTS[::4]
    start = min(((a, b) for a in coarse for b in coarse), key=norm)
    bounds = [(math.log(_EXPONENTS[0]), math.log(_EXPONENTS[-1]))] * 2
    better = optimize.minimize(
        lambda logs: norm(np.exp(logs)), np.log(start), method="Nelder-Mead", bounds=bounds,
        options={"xatol": 1e-4, "fatol": 1e-12, "maxiter": 400},
    )  # fmt: skip
    return tuple(float(value) for value in np.exp(better.x))


def _profile(losses: FloatArray, x: FloatArray) -> FloatArray:
    """The sum of squares for every exponent of the grid at once, with E and A not negative."""
    terms = np.exp(-np.outer(_EXPONENTS, x))
    centred, y = terms - terms.mean(axis=1, keepdims=True), losses - losses.mean()
    a = (centred * y).sum(axis=1) / (centred**2).sum(axis=1)
    e = losses.mean() - a * terms.mean(axis=1)
    a = np.where(e < 0, (terms * losses).sum(axis=1) / (terms**2).sum(axis=1), a)
    e = np.maximum(e, 0.0)
    a, e = np.where(a < 0, 0.0, a), np.where(a < 0, losses.mean(), e)
    return np.asarray(((losses - e[:, None] - a[:, None] * terms) ** 2).sum(axis=1))


def misfit(law: ScalingLaw, seeds: FloatArray, sizes: FloatArray, tokens: FloatArray, computation: FloatArray) -> float:
    """The p-value of the residuals of a law for losses [points, seeds]; nan where nothing is left to judge by."""
    points, n = seeds.shape
    parameters = 1 + 2 * len(law.exponents)
    if points <= parameters or n < 2:
        return math.nan
    predicted = law.loss(computation) if law.line else law.loss(sizes, tokens)
    residual = n * float(((seeds.mean(axis=1) - predicted) ** 2).sum()) / (points - parameters)
    within = float(seeds.var(axis=1, ddof=1).mean())
    if within <= 0:
        return 1.0 if residual <= 1e-18 else 0.0
    return float(stats.f.sf(residual / within, points - parameters, points * (n - 1)))


def computation_at(loss_at: Callable[[float], float], loss: float, start: float) -> float:
    """The logarithm of the computation at which a falling curve reaches a loss; ±inf where it does not within e^±60."""
    low, high = start - 60.0, start + 60.0
    if loss_at(high) > loss:
        return math.inf
    if loss_at(low) < loss:
        return -math.inf
    return float(optimize.brentq(lambda x: loss_at(x) - loss, low, high, xtol=1e-10))
