"""Holm's procedure: several hypotheses are tested so that any error among them stays below one level."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from swapformer.report.statistics.estimates import is_within


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
        if stopped is None and not is_within(p_values[index], level):
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
