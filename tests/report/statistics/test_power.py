"""Power against statsmodels and against simulation."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats
from statsmodels.stats.power import TTestIndPower, TTestPower

from swapformer.report.statistics.estimates import AroundEstimate, MeanEstimate, rates_estimate
from swapformer.report.statistics.power import (
    UNKNOWN,
    SeedRange,
    detectable,
    fewest,
    power,
    seeds_for,
)


@pytest.mark.parametrize(
    ("distance", "n", "alpha"), [(1.0, 8, 0.05), (2.0, 5, 0.01), (0.5, 30, 0.0125), (3.0, 3, 0.05)]
)
def test_power_is_statsmodels(distance: float, n: int, alpha: float) -> None:
    oracle = TTestPower().power(distance, n, alpha, alternative="larger")
    assert power(distance, 1.0, n, alpha) == pytest.approx(oracle, rel=1e-6)


def test_power_is_the_share_of_limits_that_stay_clear() -> None:
    samples = np.random.default_rng(0).normal(0.9, 1.0, (4000, 10))
    half = stats.t.ppf(0.95, 9) * samples.std(axis=1, ddof=1) / math.sqrt(10)
    assert power(0.9, 1.0, 10) == pytest.approx(np.mean(samples.mean(axis=1) - half > 0), abs=0.03)


@pytest.mark.parametrize(("distance", "n", "error"), [(45.625, 2, 0.005), (20.2, 3, 0.000625), (20.2, 3, 0.0005)])
def test_power_of_two_and_three_seeds_far_out_is_the_share_of_limits_that_stay_clear(
    distance: float, n: int, error: float
) -> None:
    """There the normal law is far off: it promised .81 where studies decide .69, and 1.00 where they decide .78."""
    g = np.random.default_rng(n)
    means = distance + g.normal(size=100_000) / math.sqrt(n)
    spreads = np.sqrt(g.chisquare(n - 1, size=100_000) / (n - 1))
    clear = means > stats.t.ppf(1 - error, n - 1) * spreads / math.sqrt(n)
    assert power(distance, 1.0, n, error) == pytest.approx(clear.mean(), abs=0.006)


def test_the_fewest_seeds_are_the_fewest() -> None:
    n = fewest(lambda seeds: power(1.0, 1.0, seeds, 0.05) >= 0.8)
    assert n is not None
    assert power(1.0, 1.0, n, 0.05) >= 0.8 > power(1.0, 1.0, n - 1, 0.05)
    assert fewest(lambda seeds: power(1e-6, 1.0, seeds) >= 0.8) is None


def test_the_range_holds_the_estimate_from_the_observed_spread() -> None:
    found = seeds_for(MeanEstimate(0.5, 8, 1 / math.sqrt(8)), (0.0, math.inf), 0.05)
    middle = fewest(lambda seeds: power(0.5, 1.0, seeds) >= 0.8)
    assert found is not None and found.low is not None and found.high is not None and middle is not None
    assert 9 <= found.low < middle < found.high
    assert found.chances == pytest.approx((power(0.5, 1.0, found.low), power(0.5, 1.0, found.high)))
    assert found.chances[0] < 0.8 < found.chances[1]
    assert seeds_for(MeanEstimate(1e-6, 8, 1.0), (0.0, math.inf), 0.05) == SeedRange(None, None, UNKNOWN)


def test_unpaired_seeds_bring_degrees_of_freedom_twice() -> None:
    """Two samples of n with a standard deviation of 1 each: statsmodels' power, with √2 as that of a difference."""
    oracle = TTestIndPower().power(1.5, 6, 0.01, alternative="larger")
    assert power(1.5, math.sqrt(2), 6, 0.01, freedom=2) == pytest.approx(oracle, rel=1e-6)


def test_power_stays_a_probability_far_out() -> None:
    values = [power(d, 1.0, n, 1e-4) for d in (0.1, 1.0, 5.0, 50.0, 1e6) for n in (2, 5, 100, 1000)]
    assert all(0 <= value <= 1 for value in values)
    assert power(1e6, 1.0, 3) == pytest.approx(1.0)


def test_the_distance_that_seeds_find_has_that_power() -> None:
    assert power(detectable(3, 0.05 / 4), 1.0, 3, 0.05 / 4) == pytest.approx(0.8, abs=0.01)
    assert detectable(1, 0.05) == math.inf


def test_a_share_on_its_very_edge_may_be_decided_by_other_seeds_so_that_looks_go_on() -> None:
    """Shares are few numbers: nobody diverged in either arm, or as many, is where many studies begin."""
    for here, there in (([0, 0, 0], [0, 0, 0]), ([1, 1, 0, 0], [0, 0, 1, 1])):
        found = rates_estimate(np.array(here, dtype=bool), np.array(there, dtype=bool))
        assert seeds_for(found, (0.0, math.inf), 0.04) == SeedRange(None, None)


@pytest.mark.parametrize("region", [(-math.inf, 0.0), (-1.0, 0.0)])
def test_no_number_of_seeds_takes_a_possible_bias_away(region: tuple[float, float]) -> None:
    assert seeds_for(AroundEstimate(MeanEstimate(-0.5, 5, 0.1), bias=1.0), region, 0.04) is None
    assert seeds_for(AroundEstimate(MeanEstimate(-0.5, 5, 0.1), bias=0.1), region, 0.04) is not None
