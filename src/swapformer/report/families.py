"""Families of numbers, such as a metric over lengths: their points (x, y), and what one number says of them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from swapformer.results.moments import family_of

Points = list[tuple[float, float]]


def of_lengths(base: str, metrics: Mapping[str, float]) -> Points:
    """(length, value) of all metrics `base@length`, shortest first."""
    split = [(*family_of(name), value) for name, value in metrics.items()]
    return sorted((float(n), value) for of, n, value in split if of == base and n.isdigit())


def over_points(kind: str, points: Points) -> float:
    """A slope on log-log axes, or a rank correlation."""
    xs, ys = (np.array(each) for each in zip(*points, strict=True))
    if kind == "slope":
        positive = bool((ys > 0).all() and (xs > 0).all())
        return float(np.polyfit(np.log(xs), np.log(ys), 1)[0]) if positive else math.nan
    from scipy import stats  # late: a study file is read with what numbers may be derived, and this takes seconds

    return float(stats.kendalltau(xs, ys).statistic)


def crossing(points: Sequence[tuple[float, float, float]]) -> float:
    """The length at which two families (length, value, value) first meet."""
    lengths, here, there = (np.array(each) for each in zip(*points, strict=True))
    if not ((here > 0) & (there > 0)).all():
        return math.nan
    x, gap = np.log(lengths), np.log(here) - np.log(there)
    for at in range(len(x)):
        if gap[at] == 0:
            return float(lengths[at])
        if at + 1 < len(x) and gap[at] * gap[at + 1] < 0:
            return math.exp(float(x[at] + (x[at + 1] - x[at]) * gap[at] / (gap[at] - gap[at + 1])))
    return math.nan
