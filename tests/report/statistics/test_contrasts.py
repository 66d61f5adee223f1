"""Claims beside the difference of two means: their estimates, their duality, their coverage, and exact metrics."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy import stats

from report.statistics.test_verdicts import METRICS, evidence
from swapformer.errors import UsageError
from swapformer.report.page import wording
from swapformer.report.statistics.claim_grammar import parse
from swapformer.report.statistics.contrasts import ExactEstimate, ShareEstimate
from swapformer.report.statistics.estimates import MeanEstimate, OpenEstimate
from swapformer.report.statistics.evidence import Evidence, join
from swapformer.report.statistics.power import power_plan
from swapformer.report.statistics.verdicts import Verdict, judge

GENERATOR = np.random.default_rng(11)
NOISE = GENERATOR.normal(0, 0.05, (6, 8))


def one(seen: Evidence, exact: Sequence[str] = (), metrics: Sequence[str] = METRICS, **body: Any) -> Verdict:
    return judge(parse([{"text": "said", **body}], (*seen.arms, "gone"), metrics, exact=exact), seen)[0]


def arms(means: Mapping[str, float], **more: Any) -> Evidence:
    return evidence({arm: mean + NOISE[index] for index, (arm, mean) in enumerate(means.items())}, **more)


class TestContrasts:
    seen = arms({"h8": 2.0, "h16": 1.5, "h32": 1.4})

    def test_are_weighted_sums_with_the_t_interval_of_each_seeds_sum(self) -> None:
        """“8 → 16 gains more than 16 → 32”: h8 − 2·h16 + h32 = .4 above 0."""
        weights = {"h8": 1, "h16": -2, "h32": 1}
        verdict = one(self.seen, contrast={"weights": weights, "metric": "val/loss", "above": 0})
        sums = sum(weight * self.seen.values[arm, "val/loss"] for arm, weight in weights.items())
        (contrast,) = verdict.contrasts
        expected = stats.ttest_1samp(sums, 0).confidence_interval(0.9)
        assert verdict.outcome == "supported" and contrast.lower == pytest.approx(expected.low)
        assert wording.contrast_text(contrast).startswith("h8 − 2·h16 + h32 = +0.")
        assert wording.claim_text(verdict.claim) == "h8 − 2·h16 + h32 in val/loss is above 0"

    @pytest.mark.parametrize(
        ("bounds", "outcome"),
        [({"between": [0.2, 0.6]}, "supported"), ({"below": 0.2}, "refuted"), ({"above": 0.4}, "undecided")],
    )
    def test_are_held_against_a_number_or_an_interval(self, bounds: dict[str, Any], outcome: str) -> None:
        weights = {"h8": 1, "h16": -2, "h32": 1}
        assert one(self.seen, contrast={"weights": weights, "metric": "val/loss", **bounds}).outcome == outcome

    def test_of_two_arms_are_the_same_as_a_difference_of_means(self) -> None:
        """Paired, unpaired, with diverged trials: `higher` is a contrast with weights 1 and -1."""
        generator = np.random.default_rng(3)
        for n_arms, diverged in itertools.product((2, 5), ({}, {"a1": [2]})):
            rows = {f"a{index}": generator.normal(index, 1, 6) for index in range(n_arms)}
            seen = evidence(rows, diverged=diverged)
            for other in rows.keys() - {"a1"}:
                plain = one(seen, higher={"arm": "a1", "than": other, "metric": "val/loss", "margin": 0.5}).contrasts[0]
                weights = {"a1": 1, other: -1}
                same = one(seen, contrast={"weights": weights, "metric": "val/loss", "above": 0.5}).contrasts[0]
                assert (plain.lower, plain.upper) == pytest.approx((same.lower, same.upper))
                assert plain.estimate.paired == same.estimate.paired

    def test_are_not_flattered_by_survivors(self) -> None:
        """A loss that was lost would have been high: what it could only raise loses its limit above."""
        seen = arms({"a": 1.0, "b": 2.0}, diverged={"a": [1]})
        for sign, opened in ((1, (False, True)), (-1, (True, False))):
            body = {"weights": {"a": sign, "b": -sign}, "metric": "val/loss", "below": 0}
            estimate = one(seen, contrast=body).contrasts[0].estimate
            assert isinstance(estimate, OpenEstimate) and (estimate.below, estimate.above) == opened

    def test_compare_two_metrics_of_one_arm(self) -> None:
        loss, other = arms({"a": 1.0}), arms({"a": 3.0}, metric="val/accuracy")
        seen = replace(loss, values={**loss.values, **other.values})
        weights = {"a": {"val/accuracy": 1, "val/loss": -1}}
        verdict = one(seen, contrast={"weights": weights, "above": 1.9})
        assert verdict.contrasts[0].estimate.value == pytest.approx(2.0) and verdict.outcome == "undecided", "no spread"

    def test_compare_conditions_of_a_grid(self) -> None:
        small, large = arms({"a": 1.0, "b": 2.0}), evidence({"a": 1.0 + NOISE[3], "b": 5.0 + NOISE[4]})
        conditions = {"size=s": {"size": "s"}, "size=m": {"size": "m"}}
        weights = {"b with size=m": 1, "a with size=m": -1, "b with size=s": -1, "a with size=s": 1}
        raw = [{"text": "interaction", "contrast": {"weights": weights, "metric": "val/loss", "above": 2.5}}]
        (claim,) = parse(raw, ("a", "b"), METRICS, conditions)
        assert claim.spans and claim.arms == ("b", "a")
        verdict = judge([claim], join(dict(zip(conditions, (small, large), strict=True))))[0]
        expected = NOISE[4] - NOISE[3] - NOISE[1] + NOISE[0]
        assert verdict.outcome == "supported"
        assert verdict.contrasts[0].estimate.value == pytest.approx(3.0 + expected.mean())


class TestReaches:
    seen = evidence({"a": [0.95] * 7 + [0.1], "b": [0.95, *[0.2] * 7]}, "val/accuracy")

    def test_is_a_share_of_seeds_with_binomial_limits(self) -> None:
        body = {"arm": "a", "metric": "val/accuracy", "value": 0.9, "share": 0.4}
        (contrast,) = one(self.seen, reaches=body).contrasts
        expected = stats.binomtest(7, 8, alternative="greater").proportion_ci(0.95)
        assert contrast.lower == pytest.approx(expected.low) and contrast.outcome == "supported"
        assert one(self.seen, reaches=body | {"arm": "b"}).outcome == "undecided"
        assert one(self.seen, reaches=body | {"arm": "b", "share": 0.8}).outcome == "refuted"

    def test_or_a_difference_of_rates(self) -> None:
        body = {"arm": "a", "than": "b", "metric": "val/accuracy", "value": 0.9, "margin": 0.0}
        verdict = one(self.seen, reaches=body)
        assert verdict.outcome == "supported" and verdict.contrasts[0].estimate.value == pytest.approx(6 / 8)

    def test_counts_a_trial_that_diverged_as_one_that_does_not(self) -> None:
        seen = evidence({"a": np.full(8, 0.95)}, "val/accuracy", diverged={"a": [0, 1, 2, 3]})
        verdict = one(seen, reaches={"arm": "a", "metric": "val/accuracy", "value": 0.9, "share": 0.2})
        assert verdict.contrasts[0].estimate.value == 0.5 and verdict.pairs == 8
        assert "a diverged with 4 of 8 seeds: counted as the worst" in verdict.notes

    def test_follows_the_metrics_direction(self) -> None:
        seen = evidence({"a": [0.1, 0.2, 3.0, 0.1]})
        verdict = one(seen, reaches={"arm": "a", "metric": "val/loss", "value": 0.5, "share": 0.1})
        assert verdict.contrasts[0].estimate.value == 0.75


def test_limits_and_p_values_of_a_share_agree() -> None:
    for count, n in itertools.product(range(9), (8,)):
        estimate = ShareEstimate(count, n)
        for x, tail in itertools.product(np.linspace(0.01, 0.97, 25), (0.05, 0.01)):
            assert (estimate.lower(tail) > x) == (estimate.p_above(x) < tail)
            assert (estimate.upper(tail) < x) == (estimate.p_below(x) < tail)


def test_a_trend_is_the_mean_of_each_seeds_rank_correlation() -> None:
    seen = arms({"h1": 2.0, "h2": 1.9, "h4": 1.8, "h8": 1.7})
    body = {"arms": ["h1", "h2", "h4", "h8"], "metric": "val/loss", "below": 0}
    verdict = one(seen, trend=body)
    rows = np.array([seen.values[arm, "val/loss"] for arm in body["arms"]])
    taus = [stats.kendalltau(range(4), column).statistic for column in rows.T]
    assert verdict.outcome == "supported" and verdict.contrasts[0].estimate.value == pytest.approx(np.mean(taus))
    assert wording.claim_text(verdict.claim).startswith("Kendall's τ between the order h1, h2, h4, h8 and val/loss")


def test_first_place_is_won_seed_by_seed() -> None:
    seen = evidence({"a": [1.0] * 8, "b": [2.0] * 7 + [0.5], "c": [3.0] * 8})
    body = {"arm": "a", "than": ["b", "c"], "metric": "val/loss", "margin": 0.0}
    verdict = one(seen, first=body)
    assert verdict.contrasts[0].estimate.value == pytest.approx((7 - 1) / 8) and verdict.outcome == "supported"
    tied = evidence({"a": [1.0] * 8, "b": [1.0] * 8, "c": [3.0] * 8})
    assert one(tied, first=body).contrasts[0].estimate.value == 0.0


class TestExactMetrics:
    seen = evidence({"a": [512.0], "b": [4096.0]}, "probe/x")
    body: Mapping[str, Any] = {"arm": "a", "than": "b", "metric": "probe/x"}

    def test_are_decided_by_arithmetic_from_one_seed(self) -> None:
        for margin, outcome in ((3583.0, "supported"), (3584.0, "refuted"), (3585.0, "refuted")):
            verdict = one(self.seen, exact=["probe/x"], lower={**self.body, "margin": margin})
            assert verdict.outcome == outcome and verdict.p_adjusted == 0
        weights = {"b": 1, "a": -8}
        body = {"weights": weights, "metric": "probe/x", "between": [-1e-9, 1e-9]}
        verdict = one(self.seen, exact=["probe/x"], contrast=body)
        assert verdict.outcome == "supported" and isinstance(verdict.contrasts[0].estimate, ExactEstimate)
        assert wording.ends_text(verdict).startswith("exact")
        assert one(self.seen, lower={**self.body, "margin": 1.0}).outcome == "undecided", "any other metric needs seeds"

    def test_take_no_share_of_holms_error(self) -> None:
        loss = arms({"a": 1.0, "b": 1.1})
        counted = evidence({"a": [512.0] * 8, "b": [4096.0] * 8}, "probe/x")
        seen = replace(loss, values={**loss.values, **counted.values})
        raw = [
            {"text": "open", "worse": {"arm": "a", "than": "b", "metric": "val/loss", "margin": 0.0}},
            *[{"text": "exact", "lower": {**self.body, "margin": float(m)}} for m in range(5)],
        ]
        verdicts = judge(parse(raw, seen.arms, METRICS, exact=["probe/x"]), seen)
        assert verdicts[0].level == 0.05 and {verdict.outcome for verdict in verdicts[1:]} == {"supported"}

    def test_whose_seeds_differ_are_an_error(self) -> None:
        seen = evidence({"a": [512.0, 513.0], "b": [4096.0, 4096.0]}, "probe/x")
        with pytest.raises(UsageError, match="probe/x is said to be `exact`, but a has 512 with one seed and 513"):
            one(seen, exact=["probe/x"], lower={**self.body, "margin": 1.0})


def test_what_seeds_could_decide_is_planned_for_every_kind() -> None:
    """A share above .5 needs 5 seeds that all reach it (.5^5 = .031), 4 are not enough; what is exact needs one."""
    reaches = {"text": "r", "reaches": {"arm": "a", "metric": "val/accuracy", "value": 0.9, "share": 0.5}}
    for seeds, decidable in ((4, 0), (5, 1)):
        assert power_plan(parse([reaches], "ab", METRICS), seeds).decidable == decidable
    exact = {"text": "e", "lower": {"arm": "a", "than": "b", "metric": "probe/x", "margin": 1}}
    assert power_plan(parse([exact], "ab", METRICS, exact=["probe/x"]), 1).decidable == 1
    contrast = {"text": "c", "contrast": {"weights": {"a": 1, "b": -1}, "metric": "val/loss", "between": [-1, 1]}}
    plan = power_plan(parse([contrast, reaches], "ab", METRICS), 8)
    assert (plan.claims, plan.decidable) == (2, 2)


SAMPLES = 1500


def errs(make: Any, **body: Any) -> float:
    """How often a claim whose truth lies at its edge is decided to the wrong side, over many studies."""
    generator = np.random.default_rng(5)
    (claim,) = parse([{"text": "edge", **body}], ("a", "b", "c", "d"), METRICS)
    outcomes = [judge([claim], make(generator))[0].outcome for _ in range(SAMPLES)]
    return max(outcomes.count("supported"), outcomes.count("refuted")) / SAMPLES


@pytest.mark.evidence
def test_each_kind_errs_with_5_percent_at_most_where_seeds_are_normal() -> None:
    limit = 0.05 + 3 * math.sqrt(0.05 * 0.95 / SAMPLES)

    def normal(means: Sequence[float], n: int = 5) -> Any:
        return lambda g: evidence({arm: mean + g.normal(0, 1, n) for arm, mean in zip("abcd", means, strict=False)})

    weights = {"a": 2, "b": -1, "c": -1}
    assert errs(normal([1, 0.5, 0.5, 0]), contrast={"weights": weights, "metric": "val/loss", "above": 1.0}) <= limit
    assert errs(normal([0, 0, 0, 0], 8), trend={"arms": list("abcd"), "metric": "val/loss", "above": 0}) <= limit
    assert errs(normal([0, 0]), first={"arm": "a", "than": "b", "metric": "val/loss", "margin": 0.0}) <= limit

    def rates(p: float, q: float) -> Any:
        return lambda g: evidence({"a": (g.random(8) < p) * 1.0, "b": (g.random(8) < q) * 1.0}, "val/accuracy")

    body = {"arm": "a", "metric": "val/accuracy", "value": 1.0}
    assert errs(rates(0.6, 0.6), reaches={**body, "share": 0.6}) <= limit
    assert errs(rates(0.6, 0.4), reaches={**body, "than": "b", "margin": 0.2}) <= limit


def test_the_interval_of_an_unpaired_contrast_is_that_of_welch_and_satterthwaite() -> None:
    """With two arms of weights 1 and -1 scipy's Welch test is the oracle (four arms, so that the rule may not pair)."""
    own = np.array([[1.0, -1, 1, -1, 1, -1], [2, 2, -2, -2, 0, 0], [3, -3, -3, 3, 1, -1], [4, 0, 0, -4, -4, 4]])
    rows = dict(zip("abcd", own, strict=True))
    seen = evidence(rows)
    assert not seen.pairing("val/loss").paired, "rows that hardly correlate"
    (contrast,) = one(seen, contrast={"weights": {"a": 1, "c": -1}, "metric": "val/loss", "above": 0}).contrasts
    expected = stats.ttest_ind(rows["a"], rows["c"], equal_var=False).confidence_interval(0.9)
    assert isinstance(contrast.estimate, MeanEstimate)
    assert (contrast.lower, contrast.upper) == pytest.approx((expected.low, expected.high))
