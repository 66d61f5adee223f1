"""Statistics of small samples: t intervals, prediction intervals, Holm's procedure."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from scipy import special

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
