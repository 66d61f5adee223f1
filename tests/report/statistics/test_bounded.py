"""Means of bounded numbers: exact laws of rank correlations against enumeration, skewed times, and their duality."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy import stats

from swapformer.report.statistics.bounded import (
    MallowsEstimate,
    SkewedEstimate,
    _mean_tau,
    censored_estimate,
    trend_estimate,
)  # fmt: skip
from swapformer.report.statistics.estimates import Estimate, IdenticalEstimate, MeanEstimate, mean_estimate


def inversions(order: tuple[int, ...]) -> int:
    return sum(a > b for a, b in itertools.combinations(order, 2))


@pytest.mark.parametrize("theta", [-0.7, 0.0, 1.3])
def test_the_law_of_mallows_is_that_of_all_orders_weighed_one_by_one(theta: float) -> None:
    """Oracle: 24² pairs of orders of four arms, each with its weight e^(-θ · inversions)."""
    orders = [inversions(order) for order in itertools.permutations(range(4))]
    weights = np.exp(-theta * np.array(orders, dtype=float))
    taus = 1 - np.array(orders) / 3
    mean = float((weights * taus).sum() / weights.sum())
    assert _mean_tau(4, theta) == pytest.approx(mean)
    for seen in (0, 3, 7, 12):
        both = [
            (a + b, wa * wb)
            for a, wa in zip(orders, weights, strict=True)
            for b, wb in zip(orders, weights, strict=True)
        ]
        tail = sum(weight for count, weight in both if count <= seen) / weights.sum() ** 2
        assert MallowsEstimate(1 - seen / 6, 2, 4, seen).p_above(mean) == pytest.approx(tail)


def test_limits_and_p_values_agree() -> None:
    estimates: list[Estimate] = [MallowsEstimate(1 - d / 12, 4, 4, d) for d in (0, 2.5, 12, 24)]
    estimates += [SkewedEstimate(0.3, 6, 0.2, None, g) for g in (-1.7, 0.0, 0.4, 1.7)]
    for estimate, tail, x in itertools.product(estimates, (0.05, 0.001), np.linspace(-0.97, 0.97, 23)):
        assert (estimate.lower(tail) > x) == (estimate.p_above(x) < tail)
        assert (estimate.upper(tail) < x) == (estimate.p_below(x) < tail)


def test_without_skewness_it_is_students_t() -> None:
    plain, skewed = MeanEstimate(0.3, 6, 0.2), SkewedEstimate(0.3, 6, 0.2, None, 0.0)
    for x, tail in itertools.product((-1.0, 0.0, 0.4), (0.05, 0.001)):
        assert skewed.p_above(x) == pytest.approx(plain.p_above(x)) and skewed.lower(tail) == pytest.approx(
            plain.lower(tail)
        )


def test_the_estimate_of_a_censored_time_is_the_cautious_one_of_t_and_of_its_transform() -> None:
    """Hall's transform worked out here; times that pile up at the budget are skewed to the left."""
    times = np.array([10.0, 10, 10, 9, 10, 4, 10, 8])
    t = mean_estimate(times)
    found = censored_estimate(times, t)
    g, n, x = float(stats.skew(times)), len(times), 9.5
    statistic = (times.mean() - x) / (times.std(ddof=1) / math.sqrt(n))
    moved = statistic + g * statistic**2 / (3 * math.sqrt(n)) + g**2 * statistic**3 / (27 * n) + g / (6 * math.sqrt(n))
    assert found.p_above(x) == pytest.approx(max(t.p_above(x), stats.t.sf(moved, n - 1)))
    assert found.p_below(x) == pytest.approx(max(t.p_below(x), stats.t.cdf(moved, n - 1)))
    same = IdenticalEstimate(10.0, 4)
    assert censored_estimate(np.full(4, 10.0), same) is same


def test_a_trend_that_all_seeds_show_is_not_surer_than_its_law_allows() -> None:
    """Five seeds of four arms, one neighbouring pair wrong: t sees little spread and is sure of τ > .7."""
    taus, scores = np.array([1.0, 1, 1, 1, 2 / 3]), np.array([6.0, 6, 6, 6, 4])
    t, found = mean_estimate(taus), trend_estimate(taus, scores, 4)
    assert t.p_above(0.7) < 0.05 < found.p_above(0.7)
    assert found.p_above(0.0) < 0.01, "no order at all is excluded"
    assert trend_estimate(taus[:1], scores[:1], 4).p_above(-0.5) == 1.0
