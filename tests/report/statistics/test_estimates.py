"""Statistics against scipy and statsmodels computed independently, by hand, by enumeration and by simulation."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy import stats

from swapformer.report.statistics import holm
from swapformer.report.statistics.estimates import (
    AroundEstimate,
    ExactEstimate,
    IdenticalEstimate,
    MeanEstimate,
    ShareEstimate,
    UnknownEstimate,
    WiderEstimate,
    mean_estimate,
    rates_estimate,
    unpaired_estimate,
)


def paired(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(seed)
    common = generator.normal(0, 1, n)
    return 0.3 + common + generator.normal(0, 0.2, n), common + generator.normal(0, 0.2, n)


def test_the_mean_estimate_is_scipys_paired_t_test() -> None:
    x, y = paired(8, 1)
    estimate = mean_estimate(x - y)
    oracle = stats.ttest_rel(x, y)
    assert 2 * min(estimate.p_above(0), estimate.p_below(0)) == pytest.approx(oracle.pvalue, rel=1e-12)
    expected = oracle.confidence_interval(0.99)
    assert (estimate.lower(0.005), estimate.upper(0.005)) == pytest.approx((expected.low, expected.high), rel=1e-12)


def test_equivalence_is_scipys_two_one_sided_tests() -> None:
    x, y = paired(8, 2)
    estimate = mean_estimate(x - y)
    above = stats.ttest_1samp(x - y, -0.6, alternative="greater").pvalue
    below = stats.ttest_1samp(x - y, 0.6, alternative="less").pvalue
    assert (estimate.p_above(-0.6), estimate.p_below(0.6)) == pytest.approx((above, below), rel=1e-12)


def test_the_t_interval_is_scipys() -> None:
    x, _ = paired(6, 3)
    expected = stats.ttest_1samp(x, 0).confidence_interval(0.95)
    assert mean_estimate(x).limits == pytest.approx((expected.low, expected.high), rel=1e-12)


def test_the_t_interval_covers_95_percent_at_5_seeds() -> None:
    samples = np.random.default_rng(0).normal(1.0, 2.0, (6000, 5))
    covered = np.mean([low <= 1.0 <= high for low, high in (mean_estimate(sample).limits for sample in samples)])
    assert covered == pytest.approx(0.95, abs=4 * math.sqrt(0.95 * 0.05 / 6000))


def test_a_single_seed_has_no_interval() -> None:
    assert mean_estimate(np.array([1.0])).limits == (-math.inf, math.inf)
    assert isinstance(mean_estimate(np.array([1.0])), UnknownEstimate)
    assert mean_estimate(np.array([1.0])).p_above(-1e9) == 1.0


@pytest.mark.parametrize(
    "estimate",
    [
        MeanEstimate(0.3, 6, 0.11),
        IdenticalEstimate(0.5, 6),
        IdenticalEstimate(0.5, 6, -1.0, 1.0),
        WiderEstimate(MeanEstimate(0.3, 6, 0.11), IdenticalEstimate(0.3, 6, -1.0, 1.0)),
        MeanEstimate(0.3, 6, 0.11, unpaired=7.3),
        ExactEstimate(0.3, 6),
        *(ShareEstimate(count, 8) for count in (0, 3, 8)),
        *(ShareEstimate(count, 8, other) for count, other in ((5, 0), (1, 4), (3, 1), (8, 0), (8, 8))),
        AroundEstimate(MeanEstimate(0.3, 6, 0.11), open=(False, True)),
        AroundEstimate(MeanEstimate(0.3, 6, 0.11), bias=0.07),
    ],
    ids=lambda e: type(e).__name__,
)
def test_limits_and_p_values_agree(estimate: MeanEstimate) -> None:
    for tail, x in itertools.product((0.001, 0.01, 0.025, 0.2), np.linspace(-0.99, 0.99, 41)):
        assert (estimate.lower(tail) > x + 1e-6) <= (estimate.p_above(x) <= tail)
        assert (estimate.p_above(x) < tail - 1e-6) <= (estimate.lower(tail) >= x - 1e-6)
        assert (estimate.upper(tail) < x - 1e-6) <= (estimate.p_below(x) <= tail)
        assert (estimate.p_below(x) < tail - 1e-6) <= (estimate.upper(tail) <= x + 1e-6)


def test_the_limits_of_a_share_are_those_of_clopper_and_pearson() -> None:
    expected = stats.binomtest(3, 8).proportion_ci(0.95, "exact")
    assert ShareEstimate(3, 8).limits == pytest.approx((expected.low, expected.high))
    assert ShareEstimate(3, 8).p_above(0.1) == pytest.approx(stats.binom.sf(2, 8, 0.1))
    assert ShareEstimate(3, 8).p_below(0.7) == pytest.approx(stats.binom.cdf(3, 8, 0.7))


@pytest.mark.parametrize("n", [3, 6])
def test_limits_of_a_difference_of_shares_miss_no_more_often_than_they_say(n: int) -> None:
    """By enumeration, at shares whose seeds agree, exclude each other or are independent."""
    outcomes = [(a, b, c) for a in range(n + 1) for b in range(n + 1 - a) for c in range(n + 1 - a - b)]
    for both, here, there in ((0.0, 0.0, 0.0), (0.7, 0.1, 0.1), (0.0, 0.6, 0.4), (0.25, 0.25, 0.25), (0.1, 0.8, 0.0)):
        laws = stats.multinomial(n, [both, here, there, 1 - both - here - there])
        missed = {"below": 0.0, "above": 0.0}
        for a, b, c in outcomes:
            seeds = np.arange(n)
            estimate = rates_estimate(seeds < a + b, (seeds < a) | ((seeds >= a + b) & (seeds < a + b + c)))
            p = float(laws.pmf([a, b, c, n - a - b - c]))
            missed["below"] += p * (estimate.lower(0.05) > here - there + 1e-12)
            missed["above"] += p * (estimate.upper(0.05) < here - there - 1e-12)
        assert max(missed.values()) <= 0.05


@pytest.mark.parametrize("n", [2, 8, 100])
def test_differences_without_spread_and_bounds_say_nothing(n: int) -> None:
    estimate = mean_estimate(np.full(n, 0.4))
    assert estimate.value == pytest.approx(0.4)
    assert (estimate.lower(0.025), estimate.upper(0.025)) == (-math.inf, math.inf)
    assert estimate.p_above(0) == estimate.p_below(1) == 1.0


def test_identical_differences_of_shares_allow_for_what_is_too_rare_to_have_been_seen() -> None:
    """A share q of other seeds escapes n of them with probability (1 - q)^n, and may lie at either bound."""
    estimate = mean_estimate(np.full(8, 0.4), (-1.0, 1.0))
    share = 1 - 0.025 ** (1 / 8)
    assert stats.binom.pmf(0, 8, share) == pytest.approx(0.025)
    assert estimate.lower(0.025) == pytest.approx((1 - share) * 0.4 + share * -1)
    assert estimate.upper(0.025) == pytest.approx((1 - share) * 0.4 + share * 1)
    assert estimate.p_above(-1.5) == 0.0 and estimate.p_above(0.4) == 1.0
    assert IdenticalEstimate(-1.0, 4, -1.0, 1.0).lower(0.025) == -1.0


def test_holm_by_hand() -> None:
    # Four hypotheses at 5 %: .01 ≤ .05/4 and .014 ≤ .05/3 are rejected, .03 > .05/2 is not and ends the procedure.
    p = [0.03, 0.01, 0.04, 0.014]
    assert holm.holm_levels(p) == pytest.approx([0.025, 0.0125, 0.025, 0.05 / 3])
    assert [a <= b for a, b in zip(p, holm.holm_levels(p), strict=True)] == [False, True, False, True]
    assert holm.holm_adjusted(p) == pytest.approx([0.06, 0.04, 0.06, 0.042])


@pytest.mark.evidence
def test_holm_is_statsmodels() -> None:
    from statsmodels.stats.multitest import multipletests  # it takes seconds

    generator = np.random.default_rng(5)
    for _ in range(12):
        p = list(generator.beta(0.3, 3, generator.integers(1, 9)))
        rejected, adjusted, *_ = multipletests(p, 0.05, method="holm")
        assert holm.holm_adjusted(p) == pytest.approx(list(adjusted))
        assert [a <= b for a, b in zip(p, holm.holm_levels(p), strict=True)] == list(rejected)


def test_no_claims_need_no_levels() -> None:
    assert holm.holm_levels([]) == []
    assert holm.holm_adjusted([]) == []


def test_the_estimate_of_two_independent_means_is_scipys_from_five_seeds_on_and_cautious_below() -> None:
    x, y = paired(7, 6)
    estimate, oracle = unpaired_estimate(x, 3 * y), stats.ttest_ind(x, 3 * y, equal_var=False)
    assert 2 * min(estimate.p_above(0), estimate.p_below(0)) == pytest.approx(oracle.pvalue, rel=1e-9)
    expected = oracle.confidence_interval(0.95)
    assert (estimate.lower(0.025), estimate.upper(0.025)) == pytest.approx((expected.low, expected.high), rel=1e-9)
    assert (estimate.paired, mean_estimate(x - y).paired) == (False, True)
    few = unpaired_estimate(x[:3], y)
    assert isinstance(few, MeanEstimate) and few.freedom == 2
    assert isinstance(unpaired_estimate(x[:1], y), UnknownEstimate)
