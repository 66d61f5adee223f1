"""Statistics of small samples: t intervals, Holm's procedure, bootstrap and permutation tests.

Every random procedure takes its generator; nothing here draws from global state.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence

import numpy as np
from scipy import special, stats

from swapformer.report.statistics.estimates import FloatArray


def t_interval(values: FloatArray, level: float = 0.95) -> tuple[float, float]:
    """The t interval of a mean; infinite for fewer than two values, and where all are the same."""
    if len(values) < 2 or np.ptp(values) == 0:
        return -math.inf, math.inf
    mean, error = float(values.mean()), float(values.std(ddof=1)) / math.sqrt(len(values))
    half = float(special.stdtrit(len(values) - 1, 0.5 + level / 2)) * error
    return mean - half, mean + half


def prediction_interval(values: FloatArray, level: float = 0.95) -> tuple[float, float]:
    """The interval that holds one more value with this probability: mean ± t(n - 1) · sd · √(1 + 1/n)."""
    n = len(values)
    half = float(special.stdtrit(n - 1, 0.5 + level / 2)) * float(values.std(ddof=1)) * math.sqrt(1 + 1 / n)
    return float(values.mean()) - half, float(values.mean()) + half


def bootstrap_interval(
    differences: FloatArray, generator: np.random.Generator, level: float = 0.95, resamples: int = 2000
) -> tuple[float, float]:
    """The BCa bootstrap interval of the mean (percentile where BCa is undefined); nan for fewer than three values."""
    if len(differences) < 3 or np.ptp(differences) == 0:
        return math.nan, math.nan
    for method in ("BCa", "percentile"):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # scipy warns where BCa degenerates; that case falls back below
            result = stats.bootstrap(
                (differences,), np.mean, confidence_level=level, n_resamples=resamples, method=method, rng=generator
            ).confidence_interval
        if np.isfinite(result.low) and np.isfinite(result.high):
            return float(result.low), float(result.high)
    return math.nan, math.nan


def sign_flip_p(differences: FloatArray, generator: np.random.Generator, resamples: int = 9999) -> float:
    """Two-sided p-value of the mean under random sign flips, exact up to 12 pairs; it cannot go below 2^(1 - n)."""
    if len(differences) < 2:
        return math.nan
    result = stats.permutation_test(
        (differences,), np.mean, permutation_type="samples", vectorized=True,
        n_resamples=np.inf if len(differences) <= 12 else resamples, rng=generator,
    )  # fmt: skip
    return float(result.pvalue)


def probability_of_improvement(x: FloatArray, y: FloatArray, direction: str) -> float:
    """P(a run of x is better than a run of y) over all pairs of runs, ties counted half (Agarwal 2021, 2108.13264)."""
    if not (len(x) and len(y)):
        return math.nan
    above, below = x[:, None] > y[None, :], x[:, None] < y[None, :]
    won, lost = (above, below) if direction == "higher" else (below, above)
    return float((1 + won.mean() - lost.mean()) / 2)


def holm_levels(p_values: Sequence[float], alpha: float = 0.05) -> list[float]:
    """The level at which Holm's step-down procedure tests each hypothesis (Holm 1979).

    Sorted by p, the k-th is tested at `alpha / (m - k + 1)` as long as all before it were rejected; from the first
    that is not, all share its level. So `p <= level` is the rejection, and an interval at `1 - level` shows it.
    """
    levels, m = [0.0] * len(p_values), len(p_values)
    stopped: float | None = None
    for rank, index in enumerate(np.argsort(np.asarray(p_values), kind="stable")):
        level = alpha / (m - rank) if stopped is None else stopped
        levels[index] = level
        if stopped is None and not p_values[index] <= level:
            stopped = level
    return levels


def holm_adjusted(p_values: Sequence[float]) -> list[float]:
    """Holm's adjusted p-values: the smallest family-wise level at which each hypothesis would be rejected."""
    p = np.asarray(p_values, dtype=float)
    order = np.argsort(p, kind="stable")
    stepped = np.maximum.accumulate(np.minimum(1.0, p[order] * (len(p) - np.arange(len(p)))))
    adjusted = np.empty_like(stepped)
    adjusted[order] = stepped
    return [float(value) for value in adjusted]
