"""Which metrics are compared seed by seed: the rule, and by simulation that it costs no error."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy import stats

from report.statistics.test_verdicts import METRICS, evidence, settings
from swapformer.report.statistics.claim_grammar import parse
from swapformer.report.statistics.estimates import FloatArray
from swapformer.report.statistics.pairing import FEWEST_ARMS, break_even, choose, mean_correlation
from swapformer.report.statistics.verdicts import judge

GENERATOR = np.random.default_rng(0)
INDEPENDENT = GENERATOR.normal(size=(4, 8))
COMMON = INDEPENDENT + 3 * GENERATOR.normal(size=8)


def correlated(generator: np.random.Generator, studies: int, arms: int, seeds: int, correlation: float) -> FloatArray:
    """Normal values [studies, arms, seeds] of arms that share a correlation over the seeds."""
    root = np.linalg.cholesky(np.full((arms, arms), correlation) + (1 - correlation) * np.eye(arms))
    return np.einsum("ab,sbn->san", root, generator.normal(size=(studies, arms, seeds)))


def test_pairing_breaks_even_where_both_intervals_are_as_wide() -> None:
    """Two arms with variance 1 and correlation r: √(2(1 - r)/n) · t(n - 1) against √(2/n) · t(2n - 2), both at 5 %."""
    for n in (3, 5, 8, 30):
        r = break_even(n)
        paired = math.sqrt(2 * (1 - r)) * stats.t.ppf(0.95, n - 1)
        assert paired == pytest.approx(math.sqrt(2) * stats.t.ppf(0.95, 2 * n - 2))
    assert [round(break_even(n), 2) for n in (3, 5, 8)] == [0.47, 0.24, 0.14]


def test_the_mean_correlation_is_numpys() -> None:
    pairs = np.corrcoef(COMMON)[np.triu_indices(4, 1)]
    assert mean_correlation(COMMON) == pytest.approx(pairs.mean())


def test_an_arm_without_spread_counts_as_uncorrelated() -> None:
    still = np.vstack([COMMON[:3], np.full(8, 0.4)])
    pairs = np.corrcoef(COMMON[:3])[np.triu_indices(3, 1)]
    assert mean_correlation(still) == pytest.approx(pairs.sum() / 6)
    assert mean_correlation(np.ones((4, 8))) == 0


def test_only_arms_that_hardly_correlate_are_compared_by_their_means() -> None:
    assert choose(COMMON, True).paired
    assert not choose(INDEPENDENT, True).paired
    assert "below 0.14" in choose(INDEPENDENT, True).reason


def test_whatever_is_out_of_the_ordinary_means_paired() -> None:
    assert choose(INDEPENDENT[: FEWEST_ARMS - 1], True).reason == "fewer than 4 arms share the metric"
    lost = INDEPENDENT.copy()
    lost[3, 2] = math.nan
    assert choose(lost, True).paired and choose(INDEPENDENT, False).paired and choose(INDEPENDENT[:, :1], True).paired


def test_a_verdict_takes_welchs_interval_where_the_rule_says_so() -> None:
    rows = dict(zip("abcd", INDEPENDENT, strict=True))
    seen = evidence(rows)
    contrast = judge(parse([{"text": "t", "worse": settings()}], seen.arms, METRICS), seen)[0].contrasts[0]
    expected = stats.ttest_ind(rows["a"], rows["b"], equal_var=False).confidence_interval(0.9)
    assert (contrast.lower, contrast.upper) == pytest.approx((expected.low, expected.high))
    relative = {"arm": "a", "of": "b", "metric": "val/loss", "relative": 0.1}
    within = judge(parse([{"text": "t", "within": relative}], seen.arms, METRICS), seen)[0]
    assert within.contrasts[0].estimate.paired, "a relative margin means paired"
    apart = evidence(rows, classes={"d": ["gpu", *["cpu"] * 7], **{arm: ["cpu"] * 8 for arm in "abc"}})
    assert apart.mean_difference("a", "b", "val/loss").paired, "so does a second class, even of a third arm"


def errors(arms: int, seeds: int, correlation: float, tail: float, studies: int, fewest: int = FEWEST_ARMS) -> float:
    """How often the lower limit of the first two arms' difference, taken by the rule, lies above the true one."""
    values = correlated(np.random.default_rng(arms + seeds), studies, arms, seeds, correlation)
    x, y = values[:, 0], values[:, 1]
    paired = stats.ttest_rel(x, y, axis=1, alternative="greater").pvalue < tail
    if arms < fewest:
        return float(paired.mean())
    means = stats.ttest_ind(x, y, axis=1, equal_var=False, alternative="greater").pvalue < tail
    unit = values - values.mean(axis=2, keepdims=True)
    unit /= np.sqrt((unit**2).sum(axis=2, keepdims=True))
    mean = ((unit.sum(axis=1) ** 2).sum(axis=1) - arms) / (arms * (arms - 1))
    assert mean[0] == pytest.approx(mean_correlation(values[0]))
    return float(np.where(mean < break_even(seeds), means, paired).mean())


@pytest.mark.parametrize("seeds", [3, 5, 8])
def test_the_rule_costs_no_error(seeds: int) -> None:
    """With 2, 3, 4 and 6 arms whose correlation is not negative; of 100 000 studies, 1.08 times nominal at the most.

    Where arms truly correlate by -.15, as nothing that shares data and start does, unpaired intervals are too narrow
    by √1.15: 1.22 times nominal at .05, 1.35 at .05/8.
    """
    studies = 10_000
    for arms, correlation, tail in itertools.product((2, 4, 6), (-0.15, 0.0, 0.3, 0.9), (0.05, 0.05 / 8)):
        most = 1.35 if correlation < 0 else 1.08
        allowed = most * tail + 3.5 * math.sqrt(tail * (1 - tail) / studies)
        assert errors(arms, seeds, correlation, tail, studies) <= allowed, (arms, correlation, tail)


def test_the_simulation_would_see_a_rule_that_asks_two_arms_alone() -> None:
    assert errors(2, 5, 0.0, 0.05 / 8, 20_000, fewest=2) > 1.2 * 0.05 / 8
