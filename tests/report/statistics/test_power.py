"""Power against statsmodels and against simulation."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import optimize, stats
from statsmodels.stats.power import TTestIndPower, TTestPower

from swapformer.report.statistics.claim_grammar import parse
from swapformer.report.statistics.power import power, power_plan, seeds_range, seeds_to_decide

CLAIMS = parse(
    [{"text": str(i), "worse": {"arm": "a", "than": "b", "metric": "m", "margin": 0.1}} for i in range(4)], "ab", "m"
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


def test_the_fewest_seeds_are_the_fewest() -> None:
    n = seeds_to_decide(1.0, 1.0, 0.05)
    assert n is not None
    assert power(1.0, 1.0, n, 0.05) >= 0.8 > power(1.0, 1.0, n - 1, 0.05)
    assert seeds_to_decide(1e-6, 1.0) is None
    assert seeds_to_decide(0.0, 1.0) is None


def test_the_range_holds_the_estimate_from_the_observed_spread() -> None:
    found = seeds_range(0.5, 1.0, 8)
    low, high = found.low, found.high
    middle = seeds_to_decide(0.5, 1.0)
    assert low is not None and high is not None and middle is not None
    assert 9 <= low < middle < high
    assert found.chances == pytest.approx((power(0.5, 1.0, low), power(0.5, 1.0, high)))
    assert found.chances[0] < 0.8 < found.chances[1]


def test_unpaired_seeds_bring_degrees_of_freedom_twice() -> None:
    """Two samples of n with a standard deviation of 1 each: statsmodels' power, with √2 as that of a difference."""
    oracle = TTestIndPower().power(1.5, 6, 0.01, alternative="larger")
    assert power(1.5, math.sqrt(2), 6, 0.01, freedom=2) == pytest.approx(oracle, rel=1e-6)


def test_power_stays_a_probability_far_out() -> None:
    values = [power(d, 1.0, n, 1e-4) for d in (0.1, 1.0, 5.0, 50.0, 1e6) for n in (2, 5, 100, 1000)]
    assert all(0 <= value <= 1 for value in values)
    assert power(1e6, 1.0, 3) == pytest.approx(1.0)


def test_a_plan_counts_the_claims_that_its_seeds_could_decide() -> None:
    assert power_plan(CLAIMS, 8, effect=5.0).decidable == 4
    assert power_plan(CLAIMS, 8, effect=0.2).decidable == 0
    assert power_plan(CLAIMS, 1, effect=100.0).decidable == 0
    assert power_plan([], 8).needed == 2


def test_a_plan_names_the_seeds_that_would_do() -> None:
    short = power_plan(CLAIMS, 3, effect={"m": 0.03}, sd={"m": 0.02})
    assert short.decidable < 4 and short.needed is not None
    assert power_plan(CLAIMS, short.needed, effect=0.03, sd=0.02).decidable == 4
    assert str(short.needed) in str(short)
    assert power(short.detectable, 1.0, 3, 0.05 / 4) == pytest.approx(0.8, abs=0.01)


def test_a_claim_against_many_or_with_two_edges_needs_more_than_one_with_one() -> None:
    """The power that is promised is reached in simulation: all arms are equal, the margin is 2 sd."""
    arms = [f"a{i}" for i in range(10)]
    best, pair = (
        parse([{"text": "t", "within": {"arm": "a0", "of": other, "metric": "m", "margin": 2.0}}], arms, "m")
        for other in ("best", "a1")
    )
    for claims, others, edges in ((best, 9, 1), (pair, 1, 2)):
        seeds = power_plan(claims, 5).needed if power_plan(claims, 5).needed else 0
        assert seeds and power_plan(claims, seeds).decidable == 1 and power_plan(claims, seeds - 1).decidable == 0
        samples = np.random.default_rng(1).normal(0, 1, (4000, others, seeds))
        half = stats.t.ppf(0.95, seeds - 1) * samples.std(axis=2, ddof=1) / math.sqrt(seeds)
        inside = samples.mean(axis=2) + half < 2.0
        if edges == 2:
            inside &= samples.mean(axis=2) - half > -2.0
        assert np.mean(inside.all(axis=1)) >= 0.79


def test_a_claim_of_equivalence_may_fail_at_either_edge() -> None:
    bodies = {
        "within": {"arm": "a", "of": "b", "metric": "m", "margin": 1},
        "worse": {"arm": "a", "than": "b", "metric": "m", "margin": 1},
    }
    enough = least(0.05, 6) * 1.001
    found = [
        power_plan(parse([{"text": "t", kind: body}], "ab", "m"), 6, effect=enough) for kind, body in bodies.items()
    ]
    assert [each.decidable for each in found] == [0, 1]


def test_rates_are_planned_by_their_exact_test() -> None:
    """Always against never: McNemar's p of n seeds that all differ is 2^-n, and 5 are the first below 5 %."""
    claims = parse([{"text": "t", "diverges": {"arm": "a", "than": "b", "margin": 0}}], "ab", [])
    assert [power_plan(claims, seeds).decidable for seeds in (4, 5)] == [0, 1]
    assert power_plan(claims, 2).needed == 5


def test_claims_share_the_error_by_holms_steps() -> None:
    """Power .8 at α/4 is not needed of the claims that come later: they are tested at α/3, α/2, α."""
    seeds, m = 6, 4
    borders = [distance for alpha in (0.05 / 4, 0.05 / 3, 0.05 / 2, 0.05) for distance in [least(alpha, seeds)]]
    names = [f"m{i}" for i in range(m)]
    claims = parse(
        [{"text": n, "worse": {"arm": "a", "than": "b", "metric": n, "margin": 0.1}} for n in names], "ab", names
    )
    exact = dict(zip(names, (border * 1.001 for border in borders), strict=True))
    assert power_plan(claims, seeds, effect=exact).decidable == m
    assert power_plan(claims, seeds, effect={**exact, "m0": borders[0] * 0.99}).decidable == 0
    assert power_plan(claims, seeds, effect={**exact, "m1": borders[1] * 0.99}).decidable == 1


def least(alpha: float, seeds: int) -> float:
    """The distance that is found with power 0.8."""
    return float(optimize.brentq(lambda distance: power(distance, 1.0, seeds, alpha) - 0.8, 0.1, 50))
