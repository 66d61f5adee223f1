"""Claims beside the difference of two means: their estimates, their duality, their coverage, and exact metrics."""

from __future__ import annotations

import itertools
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
from swapformer.report.statistics.estimates import AroundEstimate, ExactEstimate, SameModelEstimate
from swapformer.report.statistics.evidence import Evidence, join
from swapformer.report.statistics.verdicts import Verdict, judge

GENERATOR = np.random.default_rng(11)
NOISE = GENERATOR.normal(0, 0.05, (6, 8))


def one(seen: Evidence, exact: Sequence[str] = (), metrics: Sequence[str] = METRICS, **body: Any) -> Verdict:
    return judge(parse([{"text": "said", **body}], (*seen.arms, "gone"), metrics, exact=exact), seen)[0]


def arms(means: Mapping[str, float], **more: Any) -> Evidence:
    return evidence({arm: mean + NOISE[index] for index, (arm, mean) in enumerate(means.items())}, **more)


def test_seeds_of_several_environment_classes_make_no_sum_and_no_order_and_are_told() -> None:
    classes = {"a": ["cpu"] * 6 + ["cuda"] * 2, "b": ["cpu"] * 8, "c": ["cpu"] * 8}
    seen = arms({"a": 2.0, "b": 1.5, "c": 1.0}, classes=classes)
    trend = {"arms": ["a", "b", "c"], "metric": "val/loss", "below": 0}
    contrast = {"weights": {"a": 1, "c": -1}, "metric": "val/loss", "above": 0}
    for verdict in (one(seen, trend=trend), one(seen, contrast=contrast)):
        assert verdict.pairs == 6 and verdict.outcome == "supported"
        assert [note for note in verdict.notes if "environment classes differ: seed 6, 7" in note]
    assert not one(arms({"a": 2.0, "b": 1.5, "c": 1.0}), trend=trend).notes


def test_arms_that_trained_one_model_leave_nothing_only_where_they_cancel() -> None:
    """With b and c the same model, b − c is no evidence; a − ½b − ½c is a − b, and 2b − c is b."""
    seen = arms({"a": 2.0, "b": 1.5})
    twin = {("c", metric): row for (arm, metric), row in seen.values.items() if arm == "b"}
    losses = {arm: np.array([f"{arm} {seed}" for seed in range(8)], dtype=object) for arm in ("a", "b")}
    per_arm = {
        name: {**getattr(seen, name), "c": getattr(seen, name)["b"]} for name in ("finished", "diverged", "classes")
        if "b" in getattr(seen, name)
    }  # fmt: skip
    seen = replace(
        seen, arms=("a", "b", "c"), values={**seen.values, **twin}, losses={**losses, "c": losses["b"]}, **per_arm
    )
    plain = one(seen, contrast={"weights": {"a": 1, "b": -1}, "metric": "val/loss", "above": 0})
    halves = one(seen, contrast={"weights": {"a": 1, "b": -0.5, "c": -0.5}, "metric": "val/loss", "above": 0})
    assert plain.outcome == halves.outcome == "supported"
    assert halves.contrasts[0].estimate.limits == pytest.approx(plain.contrasts[0].estimate.limits)
    assert one(seen, contrast={"weights": {"b": 2, "c": -1}, "metric": "val/loss", "above": 1}).outcome == "supported"
    none = one(seen, contrast={"weights": {"b": 1, "c": -1}, "metric": "val/loss", "above": 0})
    assert none.outcome == "undecided" and isinstance(none.contrasts[0].estimate, SameModelEstimate)


class TestContrasts:
    seen = arms({"h8": 2.0, "h16": 1.5, "h32": 1.4})

    def test_are_weighted_sums_with_the_t_interval_of_each_seeds_sum(self) -> None:
        """“8 → 16 gains more than 16 → 32”: h8 − 2·h16 + h32 = .4 above 0."""
        weights = {"h8": 1, "h16": -2, "h32": 1}
        verdict = one(self.seen, contrast={"weights": weights, "metric": "val/loss", "above": 0})
        sums = sum(weight * self.seen.values[arm, "val/loss"] for arm, weight in weights.items())
        (contrast,) = verdict.contrasts
        expected = stats.ttest_1samp(sums, 0).confidence_interval(
            0.95
        )  # at an edge of 0 each end has half of the level
        assert verdict.outcome == "supported" and contrast.lower == pytest.approx(expected.low)
        assert wording.contrast_text(contrast).startswith("h8 − 2·h16 + h32 = +0.")
        assert verdict.claim.assertion == "h8 − 2·h16 + h32 in val/loss is above 0"

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
            assert isinstance(estimate, AroundEstimate) and estimate.open == opened

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


class TestSlopesOverAnAxis:
    """Losses depth^-.5, but for noise: a slope of -.5 however the axis is written."""

    depths = (3, 6, 12)
    seen = evidence({f"d{d}": d**-0.5 * np.exp(0.1 * NOISE[i]) for i, d in enumerate(depths)})
    body: Mapping[str, Any] = {"metric": "val/loss", "between": [-0.55, -0.45]}

    def test_are_least_squares_of_each_seed(self) -> None:
        claims = [
            {"over": {f"d{d}": d for d in self.depths}},
            {"over": "model.num_layers", "arms": ["d12", "d3", "d6"]},
        ]
        overrides = {f"d{d}": ("optim.lr=1", f"model.num_layers={d}") for d in self.depths}
        seen = replace(self.seen, values={(a, "log(val/loss)"): np.log(v) for (a, _), v in self.seen.values.items()})
        rows = np.array([seen.values[f"d{d}", "log(val/loss)"] for d in self.depths])
        slopes = np.polyfit(np.log(self.depths), rows, 1)[0]
        for axis in claims:
            (claim,) = parse([{"text": "s", "slope": {**self.body, **axis}}], overrides, METRICS)
            (verdict,) = judge([claim], seen)
            expected = stats.ttest_1samp(slopes, 0).confidence_interval(0.9)
            assert verdict.outcome == "supported" and not claim.spans
            assert verdict.contrasts[0].estimate.value == pytest.approx(slopes.mean())
            assert verdict.contrasts[0].lower == pytest.approx(expected.low)
        assert claim.assertion == (
            "slope of d3, d6, d12 over model.num_layers in log(val/loss) is between −0.55 and −0.45"
        )

    def test_go_along_a_key_of_the_grid_and_may_be_held_against_another_arm(self) -> None:
        conditions = {f"depth={d}": {"depth": str(d)} for d in self.depths}
        by = {
            f"depth={d}": evidence(
                {"pre": np.log(d) * -0.5 + 0.1 * NOISE[i], "post": 0.1 * NOISE[i + 3]}, "log(val/loss)"
            )
            for i, d in enumerate(self.depths)
        }
        for than, below in ({}, -0.3), ({"than": "post"}, -0.3), ({"than": "post"}, -0.7):
            raw = {"arm": "pre", **than, "metric": "val/loss", "over": "depth", "below": below}
            (claim,) = parse([{"text": "s", "slope": raw}], ("pre", "post"), METRICS, conditions)
            (verdict,) = judge([claim], join(by))
            assert claim.spans and verdict.outcome == ("supported" if below == -0.3 else "refuted")
            assert verdict.contrasts[0].estimate.value == pytest.approx(-0.5, abs=0.1)

    @pytest.mark.parametrize(
        ("body", "message"),
        [
            ({"over": {"d3": 3}}, "needs at least two different numbers, one for each point, but has 3"),
            ({"over": {"d3": 3, "d6": 3}}, "but has 3, 3"),
            ({"over": {"d3": 0, "d6": 3}}, "must be above 0, for its logarithm, but is 0"),
            ({"over": {"d9": 3, "d6": 3}}, "unknown arm 'd9'"),
            ({"over": "model.num_layer", "arms": ["d3", "d6"]}, "no key of the grid, nor does the arm 'd3' set it"),
            ({"over": "model.num_layer"}, "did you mean 'model.num_layers'"),
            ({"over": "optim.name", "arms": ["d3", "d6"]}, "must have numbers for values, but one is 'sgd'"),
            ({"over": "depth"}, "over depth, a key of the grid, needs the `arm`"),
            ({"over": "depth", "arm": "d3"}, "needs one value of every other key of the grid: say at: {size: s}"),
            ({"arms": ["d3", "d6"]}, "needs `arm`, and goes over lengths then; or `over`"),
        ],
    )
    def test_a_wrong_axis_is_told_in_one_line(self, body: dict[str, Any], message: str) -> None:
        overrides = {f"d{d}": (f"model.num_layers={d}", "optim.name=sgd") for d in self.depths}
        conditions = {f"depth={d}, size={s}": {"depth": str(d), "size": s} for d in (3, 6) for s in "sm"}
        with pytest.raises(UsageError) as error:
            parse([{"text": "s", "slope": {**self.body, **body}}], overrides, METRICS, conditions)
        assert message in str(error.value) and "\n" not in str(error.value) and len(str(error.value)) <= 300

    def test_at_chooses_the_other_keys(self) -> None:
        conditions = {f"depth={d}, size={s}": {"depth": str(d), "size": s} for d in (3, 6) for s in "sm"}
        raw = {"text": "s", "slope": {"arm": "d3", "over": "depth", **self.body}, "at": {"size": "m"}}
        (claim,) = parse([raw], ("d3",), METRICS, conditions)
        assert [term.condition for term in claim.terms] == ["depth=3, size=m", "depth=6, size=m"]


class TestOptimum:
    lrs = ("1e-3", "2e-3", "4e-3", "8e-3")

    def judged(self, lowest: Mapping[str, Sequence[float]], **held: Any) -> Verdict:
        """Losses that are parabolas in log lr, the lowest place of each arm and seed given in units of log 2."""
        conditions = {f"optim.lr={lr}": {"optim.lr": lr} for lr in self.lrs}
        losses = {
            at: {arm: 2 + (rank - np.array(own)) ** 2 / 8 for arm, own in lowest.items()}
            for rank, at in enumerate(conditions)
        }
        by = {at: evidence(own, "capped(val/loss)") for at, own in losses.items()}
        (claim,) = parse([{"text": "s", "optimum": {"metric": "val/loss", **held}}], tuple(lowest), METRICS, conditions)
        return judge([claim], join(by))[0]

    def test_is_the_lowest_place_of_each_seed_and_arm(self) -> None:
        lowest = {"small": [1.4, 1.5, 1.6, 1.45, 1.55], "wide": [1.0, 1.12, 1.2, 1.02, 1.15]}
        verdict = self.judged(lowest, arm="wide", than="small", between=[-0.405, 0.405])
        ratios = (np.array(lowest["wide"]) - np.array(lowest["small"])) * np.log(2)
        interval = stats.ttest_1samp(ratios, 0).confidence_interval(0.9)
        assert verdict.outcome == "supported"
        assert verdict.contrasts[0].estimate.value == pytest.approx(ratios.mean())
        assert verdict.contrasts[0].lower == pytest.approx(interval.low)
        assert verdict.claim.assertion.startswith("log optimum of wide − small over optim.lr")
        alone = self.judged(lowest, arm="small", between=[np.log(2e-3), np.log(4e-3)])
        assert alone.outcome == "supported"
        assert alone.contrasts[0].estimate.value == pytest.approx(np.log(1e-3) + 1.5 * np.log(2))

    def test_beyond_what_was_tried_it_is_not_known(self) -> None:
        lowest = {"small": [1.4, 1.5, 1.6, 1.45, 1.55], "wide": [1.0, 1.1, 0.9, 1.05, 0.2]}
        assert self.judged(lowest, arm="wide", than="small", between=[-0.405, 0.405]).outcome == "undecided"

    def test_needs_three_places_above_0(self) -> None:
        for overrides in ({"a": ("x=1",), "b": ("x=2",)}, {"a": ("x=0",), "b": ("x=2",), "c": ("x=3",)}):
            body = {"metric": "val/loss", "over": "x", "arms": list(overrides), "above": 0}
            with pytest.raises(UsageError, match="at least three numbers, all above 0"):
                parse([{"text": "s", "optimum": body}], overrides, METRICS)


REACHED = {"metric": "val/accuracy", "value": 0.9}


def test_shares_of_seeds_are_held_against_a_number_or_an_interval() -> None:
    seen = evidence({"a": np.ones(16), "b": np.ones(16)}, "val/accuracy", diverged={"a": list(range(15)), "b": [0]})
    for body, value, outcome in (
        ({"diverges": {"arm": "a", "above": 0.5}}, 15 / 16, "supported"),
        ({"diverges": {"arm": "a", "between": [0.1, 0.5]}}, 15 / 16, "refuted"),
        ({"diverges": {"arm": "b", "below": 0.5}}, 1 / 16, "supported"),
        ({"diverges": {"arm": "a", "than": "b", "between": [0.3, 1.5]}}, 14 / 16, "supported"),
        ({"reaches": {**REACHED, "arm": "b", "above": 0.5}}, 15 / 16, "supported"),
        (
            {"reaches": {"arm": "a", "than": "b", "metric": "val/accuracy", "value": 0.9, "below": 0}},
            -14 / 16,
            "supported",
        ),
    ):
        verdict = one(seen, **body)
        assert verdict.contrasts[0].estimate.value == pytest.approx(value) and verdict.outcome == outcome
        assert "share of seeds" in verdict.claim.assertion


KINDS_OF_BODIES = [
    {"higher": {"arm": "a", "than": ["b", "c"], "metric": "val/loss", "margin": 0.1}},
    {"within": {"arm": "a", "of": "b", "metric": "val/loss", "margin": 1.0}},
    {"contrast": {"weights": {"a": 1, "b": -2, "c": 1}, "metric": "val/loss", "between": [-1, 2]}},
    {"trend": {"arms": ["a", "b", "c"], "metric": "val/loss", "above": 0.2}},
    {"trend": {"arms": ["a", "b", "c"], "metric": "val/loss", "between": [-0.9, 0.9]}},
    {"reaches": {"arm": "a", "metric": "val/loss", "value": 0.2, "between": [0.2, 0.9]}},
    {"reaches": {"arm": "a", "than": "b", "metric": "val/loss", "value": 0.2, "above": -0.2}},
    {"diverges": {"arm": "a", "above": 0.1}},
    {"lower": {"arm": "a", "than": "b", "metric": "derived/steps", "margin": 0.5}},
]


def test_a_verdict_and_its_interval_agree_exactly() -> None:
    """Decided where p is at most the level; the interval lies inside the region, or outside, in just these cases.

    The planted fault: a limit at another error than the verdict's decides otherwise somewhere.
    """
    disagreed = 0
    for body in KINDS_OF_BODIES:
        generator = np.random.default_rng(17)
        metric = "derived/steps" if "lower" in body else "val/loss"
        (claim,) = parse([{"text": "s", **body}], "abc", (*METRICS, "derived/steps"))
        for _ in range(12):
            n, shift = int(generator.integers(3, 12)), float(generator.choice([0.0, 0.5, 2.0, 8.0]))
            apart = shift * np.array([[1.0], [0.2], [-1.0]]) * generator.choice([-1, 1])
            rows = dict(zip("abc", generator.normal(0, 1, (3, n)) + apart, strict=True))
            gone = {"a": [0]} if "diverges" in body or "reaches" in body else {}
            seen = replace(evidence(rows, metric, gone), censored=frozenset({"derived/steps"}))
            for level in (0.2, 0.05, 0.01):
                verdict = judge([claim], seen, level)[0]
                assert (verdict.outcome != "undecided") == (verdict.p <= level)
                disagreed += (verdict.outcome != "undecided") != (verdict.p <= 0.6 * level)
    assert disagreed, "the check can fail"


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
        assert one(self.seen, reaches=body).outcome == "undecided", "7 of 8 against 1: each share has half of the error"
        every = evidence({"a": [0.95] * 8, "b": [0.95, *[0.2] * 7]}, "val/accuracy")
        verdict = one(every, reaches=body)
        assert verdict.outcome == "supported" and verdict.contrasts[0].estimate.value == pytest.approx(7 / 8)

    def test_counts_a_trial_that_diverged_as_one_that_does_not(self) -> None:
        seen = evidence({"a": np.full(8, 0.95)}, "val/accuracy", diverged={"a": [0, 1, 2, 3]})
        verdict = one(seen, reaches={"arm": "a", "metric": "val/accuracy", "value": 0.9, "share": 0.2})
        assert verdict.contrasts[0].estimate.value == 0.5 and verdict.pairs == 8
        assert "a diverged with 4 of 8 seeds: counted as the worst" in verdict.notes

    def test_follows_the_metrics_direction(self) -> None:
        seen = evidence({"a": [0.1, 0.2, 3.0, 0.1]})
        verdict = one(seen, reaches={"arm": "a", "metric": "val/loss", "value": 0.5, "share": 0.1})
        assert verdict.contrasts[0].estimate.value == 0.75


def test_a_time_that_was_cut_off_reaches_no_target() -> None:
    """Its value is the horizon, 100, which is no time at which the target was reached."""
    rows = {"slow": np.full(8, 100.0), "fast": np.linspace(40, 60, 8)}
    seen = replace(
        evidence(rows, "derived/steps"), censored=frozenset({"derived/steps"}), directions={"derived/steps": "lower"},
        unreached={("slow", "derived/steps"): np.ones(8, dtype=bool)},
    )  # fmt: skip
    body = {"metric": "derived/steps", "value": 100}
    found = one(seen, metrics=["derived/steps"], reaches={"arm": "slow", "share": 0.5, **body})
    assert found.outcome == "refuted"
    found = one(seen, metrics=["derived/steps"], reaches={"arm": "fast", "than": "slow", "margin": 0.1, **body})
    assert found.outcome == "supported"


@pytest.mark.parametrize("below", [0.5, -0.5])
def test_an_exact_trend_of_equal_arms_is_0(below: float) -> None:
    seen = evidence({name: np.full(8, 2.0) for name in "abc"})
    found = one(seen, exact=["val/loss"], trend={"arms": ["a", "b", "c"], "metric": "val/loss", "below": below})
    assert found.outcome == ("supported" if below > 0 else "refuted")


def test_a_trend_over_arms_that_tie_is_corrected_for_ties() -> None:
    """Against scipy's τ-b, of which the plain count of pairs falls short."""
    rows = {"a": [2.0, 2.0, 2.1], "b": [2.0, 1.9, 2.0], "c": [1.5, 1.9, 2.0], "d": [1.5, 1.6, 1.4]}
    found = one(evidence(rows), trend={"arms": list(rows), "metric": "val/loss", "below": 0})
    taus = [stats.kendalltau(range(4), column).statistic for column in np.array(list(rows.values())).T]
    assert found.contrasts[0].estimate.value == pytest.approx(np.mean(taus))


def test_a_trend_is_the_mean_of_each_seeds_rank_correlation() -> None:
    seen = arms({"h1": 2.0, "h2": 1.9, "h4": 1.8, "h8": 1.7})
    body = {"arms": ["h1", "h2", "h4", "h8"], "metric": "val/loss", "below": 0}
    verdict = one(seen, trend=body)
    rows = np.array([seen.values[arm, "val/loss"] for arm in body["arms"]])
    taus = [stats.kendalltau(range(4), column).statistic for column in rows.T]
    assert verdict.outcome == "supported" and verdict.contrasts[0].estimate.value == pytest.approx(np.mean(taus))
    assert verdict.claim.assertion.startswith("Kendall's τ between the order h1, h2, h4, h8 and val/loss")


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


def optimum_errors(studies: int) -> float:
    """How often an optimum is called lower or higher than it is: six settings a factor of 2 apart, noisy losses."""
    draw, wrong, places = np.random.default_rng(0), 0, np.log(2.0 ** np.arange(6))
    truth, over = 1.5 * float(np.log(2)), {f"a{at}": 2.0**at for at in range(6)}
    claims = [
        parse([{"text": "s", "optimum": {"metric": "val/loss", "over": over, side: truth}}], tuple(over), METRICS)[0]
        for side in ("above", "below")
    ]
    bowl = 0.1 * ((places - truth) / np.log(2)) ** 2
    for _ in range(studies):
        losses = {f"a{at}": 2 + bowl[at] + draw.normal(0, 0.05, 8) for at in range(6)}
        seen = evidence(losses, "capped(val/loss)")
        wrong += any(judge([claim], seen, 0.04)[0].outcome == "supported" for claim in claims)
    return wrong / studies


def test_optima_that_noise_pulls_to_the_middle_of_the_grid_are_judged_with_that_bias(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    held = optimum_errors(200)
    assert held <= 0.08 + 3 * np.sqrt(0.08 * 0.92 / 200), "either side at 4 %"
    monkeypatch.setattr("swapformer.report.statistics.contrasts.AroundEstimate", lambda found, bias: found)
    assert optimum_errors(200) > held, "the planted fault"
