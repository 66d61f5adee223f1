"""Rates that are paired by seed: Tango's score against its published example, and the exact test by enumeration."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy import optimize, stats

from swapformer.report.statistics.rates import RateEstimate, _scores


def score(n: int, gained: int, lost: int, x: float) -> float:
    return float(_scores(n, np.array(gained), np.array(lost), np.array(x)))


def law_of(plus: float, minus: float, n: int) -> dict[tuple[int, int], float]:
    """P(gained, lost), by adding one seed after another."""
    law = {(0, 0): 1.0}
    for _ in range(n):
        after = dict[tuple[int, int], float]()
        for (gained, lost), p in law.items():
            for at, share in (
                ((gained + 1, lost), plus),
                ((gained, lost + 1), minus),
                ((gained, lost), 1 - plus - minus),
            ):
                after[at] = after.get(at, 0.0) + p * share
        law = after
    return law


def test_the_score_uses_the_likeliest_law_with_that_difference() -> None:
    """Against a plain maximisation of the likelihood over the share of `lost`."""
    for n, gained, lost, x in ((12, 5, 2, 0.1), (12, 5, 2, -0.3), (8, 3, 1, 0.25), (9, 0, 4, 0.2), (9, 4, 0, -0.1)):

        def against(q: float, n: int = n, gained: int = gained, lost: int = lost, x: float = x) -> float:
            shares = np.array([q + x, q, 1 - 2 * q - x])
            return -float(np.sum(np.array([gained, lost, n - gained - lost]) * np.log(np.maximum(shares, 1e-300))))

        bounds = (max(0.0, -x), (1 - x) / 2)
        q = optimize.minimize_scalar(against, bounds=bounds, method="bounded", options={"xatol": 1e-10}).x
        expected = (gained - lost - n * x) / math.sqrt(n * (2 * q + x - x**2))
        assert score(n, gained, lost, x) == pytest.approx(expected, abs=1e-4)


def test_against_no_difference_the_score_is_mcnemars() -> None:
    assert score(44, 10, 3, 0.0) == pytest.approx((10 - 3) / math.sqrt(13))


@pytest.mark.parametrize(("gained", "lost", "x"), [(3, 0, 0.0), (2, 0, 0.1), (3, 1, 0.0), (0, 2, -0.4), (1, 1, -0.2)])
def test_the_p_value_is_the_worst_case_over_all_laws_and_over_smaller_differences(
    gained: int, lost: int, x: float
) -> None:
    """By a plain loop over a grid of differences and laws, for 4 seeds."""
    n, worst = 4, 0.0
    for mean in [*np.linspace(-0.99, x, 30), x]:
        own = score(n, gained, lost, mean)
        for minus in np.linspace(max(0.0, -mean), (1 - mean) / 2, 40):
            law = law_of(minus + mean, minus, n)
            worst = max(worst, sum(p for at, p in law.items() if score(n, *at, mean) >= own - 1e-9))
    assert RateEstimate(gained, lost, n).p_above(x) == pytest.approx(worst, rel=5e-3)


def test_where_every_seed_differs_the_p_value_is_the_sign_tests() -> None:
    assert RateEstimate(8, 0, 8).p_above(0.0) == pytest.approx(2.0**-8)
    assert RateEstimate(0, 8, 8).p_above(0.0) == 1.0


def test_8_of_16_against_none_is_far_clearer_than_by_the_sum_alone() -> None:
    """McNemar's conditional p is 2^-8 = .0039; ordering outcomes by only their sum gave .038."""
    assert 0.002 < RateEstimate(8, 0, 16).p_above(0.0) < 0.0039


@pytest.mark.parametrize(("n", "expected"), [(12, 0.38), (16, 0.77)])
def test_the_power_for_a_half_against_never(n: int, expected: float) -> None:
    """At an error of .005; by the sum alone it was .07 and .10."""
    found = [RateEstimate(gained, 0, n).p_above(0.0) <= 0.005 for gained in range(n + 1)]
    assert np.dot(found, stats.binom.pmf(range(n + 1), n, 0.5)) == pytest.approx(expected, abs=0.01)


def test_the_p_value_never_falls_though_the_scores_own_does() -> None:
    """Of 8 seeds with 3 against 1, (1, 0) scores as high at a difference of 0, and less beyond."""
    assert score(8, 1, 0, 0.0) == pytest.approx(score(8, 3, 1, 0.0))
    assert score(8, 1, 0, 0.01) < score(8, 3, 1, 0.01)
    values = [RateEstimate(3, 1, 8).p_above(x) for x in np.linspace(-0.99, 0.99, 397)]
    assert min(np.diff(values)) >= -1e-12


@pytest.mark.parametrize("n", [3, 6, pytest.param(10, marks=pytest.mark.evidence)])
def test_limits_miss_no_more_often_than_they_say(n: int) -> None:
    """On a finer grid than the test's own, at differences that it never looks at in particular."""
    outcomes = [(g, m) for g in range(n + 1) for m in range(n + 1 - g)]
    for tail, x in itertools.product((0.05, 0.005), np.random.default_rng(n).uniform(-0.9, 0.9, 4)):
        missed = np.array([RateEstimate(*at, n).lower(tail) > x for at in outcomes])
        decided = np.array([RateEstimate(*at, n).p_above(x) < tail for at in outcomes])
        assert (missed == decided).all()
        for minus in np.linspace(max(0.0, -x), (1 - x) / 2, 101):
            law = law_of(minus + x, minus, n)
            assert sum(law[at] for at, miss in zip(outcomes, missed, strict=True) if miss) <= tail + 1e-9
