"""Verdicts: the rules one by one, agreement with the displayed interval, and the family-wise error by simulation."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any
from unittest.mock import ANY

import numpy as np
import pytest
from scipy import stats

from swapformer.report.page import wording
from swapformer.report.statistics import verdicts
from swapformer.report.statistics.claim_fields import difference
from swapformer.report.statistics.claim_grammar import parse
from swapformer.report.statistics.estimates import parts_of_level, rates_estimate
from swapformer.report.statistics.evidence import Evidence
from swapformer.report.statistics.power import SeedRange
from swapformer.report.statistics.verdicts import Verdict, judge

DIRECTIONS = {"val/loss": "lower", "val/accuracy": "higher"}
METRICS = ("val/loss", "val/accuracy", "probe/x")


def evidence(
    values: Mapping[str, Sequence[float]],
    metric: str = "val/loss",
    diverged: Mapping[str, Sequence[int]] | None = None,
    classes: Mapping[str, Sequence[str]] | None = None,
) -> Evidence:
    """One metric; nan where a trial did not finish."""
    arrays = {arm: np.asarray(row, dtype=float) for arm, row in values.items()}
    n = len(next(iter(arrays.values())))
    lost = {arm: np.isin(np.arange(n), (diverged or {}).get(arm, [])) for arm in arrays}
    return Evidence(
        tuple(arrays),
        tuple(range(n)),
        {(arm, metric): np.where(lost[arm], np.nan, row) for arm, row in arrays.items()},
        {arm: np.isfinite(row) & ~lost[arm] for arm, row in arrays.items()},
        lost,
        DIRECTIONS,
        {arm: np.asarray(row, dtype=object) for arm, row in (classes or {}).items()},
    )


def one(seen: Evidence, **body: Any) -> Verdict:
    return judge(parse([{"text": "said", **body}], (*seen.arms, "gone"), METRICS), seen)[0]


def settings(**changes: Any) -> dict[str, Any]:
    return {"arm": "a", "than": "b", "metric": "val/loss", "margin": 0.1} | changes


NOISE = np.array([0.01, -0.02, 0.015, -0.005, 0.0, 0.02, -0.015, -0.005])  # sums to zero


def apart(difference: float, **more: Any) -> Evidence:
    return evidence({"a": 1 + difference + NOISE, "b": np.ones(8)}, **more)


@pytest.mark.parametrize(
    ("n", "ranges", "outcome"),
    [(12, {}, "undecided"), (12, {"probe/x": (1.0, 41.0)}, "supported"), (2, {"probe/x": (1.0, 41.0)}, "undecided")],
)
def test_equal_seeds_decide_where_the_study_says_what_a_metric_can_be(n: int, ranges: Any, outcome: str) -> None:
    """Twelve of twelve seeds with the same reach; the other values that it could have are then rare."""
    seen = replace(evidence({"a": [24.0] * n, "b": [4.0] * n}, "probe/x"), ranges=ranges)
    assert one(seen, higher=settings(metric="probe/x", margin=1)).outcome == outcome
    assert one(seen, contrast={"weights": {"a": 1, "b": -1}, "metric": "probe/x", "above": 1}).outcome == outcome


def test_nothing_is_judged_while_the_baseline_has_not_beaten_what_it_must() -> None:
    behind = replace(apart(0.3), unbeaten=("not judged: b has not beaten a trigram",))
    verdict = one(behind, worse=settings())
    assert (verdict.outcome, verdict.needed, verdict.p) == ("undecided", None, 1.0)
    assert wording.found_text(verdict) == verdict.notes[0] == behind.unbeaten[0]
    assert verdict.contrasts[0].estimate.value == pytest.approx(0.3)


@pytest.mark.parametrize(
    ("difference", "outcome"),
    [(0.3, "supported"), (0.0, "refuted"), (-0.3, "refuted"), (0.1, "undecided"), (0.105, "undecided")],
)
def test_worse_is_supported_beyond_the_margin_and_refuted_short_of_it(difference: float, outcome: str) -> None:
    assert one(apart(difference), worse=settings()).outcome == outcome


@pytest.mark.parametrize(
    ("difference", "outcome"), [(0.0, "supported"), (0.3, "refuted"), (-0.3, "refuted"), (0.1, "undecided")]
)
def test_within_an_arm_is_equivalence(difference: float, outcome: str) -> None:
    body = {"arm": "a", "of": "b", "metric": "val/loss", "margin": 0.1}
    assert one(apart(difference), within=body).outcome == outcome


@pytest.mark.parametrize("of", ["b", "best"])
def test_a_share_of_what_is_not_known_is_undecided(of: str) -> None:
    """All seeds of the arm that is compared with diverged, or it has not run yet."""
    rows = {"a": 1 + NOISE, "b": np.full(8, math.nan), "c": 1 + NOISE[::-1]}
    body = {"arm": "a", "of": of, "metric": "val/loss", "relative": 0.1}
    for gone in ({"b": list(range(8))}, {}):
        found = one(evidence(rows, "val/loss", gone), within=body)
        assert found.outcome == ("supported" if gone and of == "best" else "undecided")
        assert not any("independent samples" in note for note in found.notes)


@pytest.mark.parametrize(("difference", "outcome"), [(-0.5, "supported"), (0.0, "supported"), (0.5, "refuted")])
def test_within_the_best_allows_being_the_best(difference: float, outcome: str) -> None:
    body = {"arm": "a", "of": "best", "metric": "val/loss", "relative": 0.1}
    assert one(apart(difference), within=body).outcome == outcome


def test_within_the_best_is_tested_against_every_other_arm() -> None:
    body = {"arm": "a", "of": "best", "metric": "val/loss", "margin": 0.1}
    seen = evidence({"a": 1 + NOISE, "b": 1 + NOISE[::-1], "c": np.full(8, 0.5), "d": np.full(8, 3.0)})
    verdict = one(seen, within=body)
    assert [contrast.than for contrast in verdict.contrasts] == ["b", "c", "d"]
    assert verdict.outcome == "refuted"
    assert [contrast.outcome for contrast in verdict.contrasts] == ["supported", "refuted", "supported"]


def test_where_any_of_several_arms_may_refute_each_gets_its_share_of_the_error() -> None:
    generator = np.random.default_rng(4)
    common = generator.normal(0, 1, 8)
    seen = evidence({name: common + generator.normal(0, 0.5, 8) for name in "abcd"})
    contrast = one(seen, worse=settings(than=["b", "c", "d"])).contrasts[0]
    difference = seen.values["a", "val/loss"] - seen.values["b", "val/loss"]
    supporting = stats.ttest_1samp(difference, 0, alternative="greater").confidence_interval(0.95).low
    refuting = stats.ttest_1samp(difference, 0, alternative="less").confidence_interval(1 - 0.05 / 3).high
    assert (contrast.lower, contrast.upper) == pytest.approx((supporting, refuting))
    assert contrast.errors == pytest.approx((0.05, 0.05 / 3))


@pytest.mark.parametrize(("difference", "error"), [(0.05, 0.05), (-0.09, 0.05), (0.11, 0.025), (-0.3, 0.025)])
def test_within_an_arm_takes_the_levels_of_the_side_that_the_estimate_lies_on(difference: float, error: float) -> None:
    """Inside, each edge must be cleared, and the one that the truth is beyond errs; outside, either edge may refute."""
    verdict = one(apart(difference), within={"arm": "a", "of": "b", "metric": "val/loss", "margin": 0.1})
    contrast = verdict.contrasts[0]
    expected = stats.ttest_1samp(difference + NOISE, 0).confidence_interval(1 - 2 * error)
    assert (contrast.lower, contrast.upper) == pytest.approx((expected.low, expected.high))
    assert contrast.errors == (error, error)
    one_sided = {
        side: stats.ttest_1samp(difference + NOISE, edge, alternative=side).pvalue
        for side, edge in (("greater", math.copysign(0.1, difference)), ("less", math.copysign(0.1, difference)))
    }
    inward = one_sided["less" if difference > 0 else "greater"]
    assert verdict.p == pytest.approx(inward if error == 0.05 else min(1.0, 2 * (1 - inward)))


def test_the_p_value_is_of_the_side_that_is_taken_and_jumps_at_the_edge() -> None:
    body = {"arm": "a", "of": "b", "metric": "val/loss", "margin": 0.1}
    inside, outside = (one(apart(difference), within=body).p for difference in (0.1 - 1e-9, 0.1 + 1e-9))
    assert (inside, outside) == pytest.approx((0.5, 1.0), abs=1e-5)


def test_a_claim_about_several_arms_must_hold_against_each() -> None:
    seen = evidence({"a": 1 + NOISE, "b": 0.5 + NOISE[::-1], "c": 0.9 + 2 * NOISE[::-1]})
    verdict = one(seen, worse=settings(than=["b", "c"]))
    assert [contrast.outcome for contrast in verdict.contrasts] == ["supported", "undecided"]
    assert verdict.outcome == "undecided"


def test_either_end_of_the_interval_of_a_lone_claim_errs_with_5_percent() -> None:
    generator = np.random.default_rng(3)
    x, y = generator.normal(1, 1, 6), generator.normal(0, 1, 6)
    contrast = one(evidence({"a": x, "b": y}), worse=settings()).contrasts[0]
    expected = stats.ttest_rel(x, y).confidence_interval(0.9)
    assert (contrast.lower, contrast.upper) == pytest.approx((expected.low, expected.high))


def test_holm_widens_the_intervals_of_undecided_claims_by_their_number() -> None:
    seen = evidence({"a": 1 + 10 * NOISE, "b": np.ones(8), "c": np.full(8, 9.0) + NOISE})
    raw = [{"text": "clear", "worse": settings(arm="c")}] + [{"text": "open", "worse": settings(margin=0.02)}] * 2
    clear, *open_ones = judge(parse(raw, seen.arms, METRICS), seen)
    assert clear.level == pytest.approx(0.05 / 3)
    assert [verdict.level for verdict in open_ones] == pytest.approx([0.025, 0.025])
    expected = stats.ttest_1samp(10 * NOISE, 0).confidence_interval(1 - 2 * 0.025)
    assert open_ones[0].contrasts[0].upper == pytest.approx(expected.high)


def test_one_seed_decides_nothing() -> None:
    verdict = one(evidence({"a": [5.0, math.nan], "b": [1.0, 1.0]}), worse=settings())
    assert (verdict.outcome, verdict.pairs) == ("undecided", 1)


def test_seeds_that_did_not_finish_are_left_out_and_never_zero() -> None:
    seen = evidence({"a": [1.3, 1.31, math.nan, 1.29, 1.3], "b": [1, 1.01, 1, 1.005, math.nan]})
    verdict = one(seen, worse=settings())
    assert verdict.pairs == 3
    assert verdict.contrasts[0].estimate.value == pytest.approx(np.mean([0.3, 0.3, 0.285]))


def test_a_mean_claim_never_favours_an_arm_that_diverged() -> None:
    lost = {"a": [2]}
    better = settings(metric="val/loss")
    assert one(apart(-0.5), better=better).outcome == "supported"
    favoured = one(apart(-0.5, diverged=lost), better=better)
    assert favoured.outcome == "undecided"
    assert favoured.contrasts[0].upper == math.inf  # the interval says so too
    assert favoured.needed is None  # and no number of seeds would
    # Refuting “a is worse” would favour a as well; the other way round nothing is lost.
    assert one(apart(-0.5, diverged=lost), worse=settings()).outcome == "undecided"
    assert one(apart(0.5, diverged=lost), worse=settings()).outcome == "supported"
    assert one(apart(0.5, diverged=lost), better=settings()).outcome == "refuted"
    within = {"arm": "a", "of": "b", "metric": "val/loss", "margin": 0.1}
    assert one(apart(0.0, diverged=lost), within=within).outcome == "undecided"
    assert one(apart(0.0, diverged={"b": [2]}), within=within).outcome == "undecided"


def test_what_was_measured_before_training_is_claimed_about_though_all_trials_of_an_arm_diverged() -> None:
    metric = "probe/x:init"
    whole = evidence({"a": 1.5 + NOISE, "b": np.ones(8)}, metric)
    everyone = np.ones(8, dtype=bool)
    seen = replace(whole, finished={**whole.finished, "a": ~everyone}, diverged={**whole.diverged, "a": everyone})
    claims = parse([{"text": "said", "higher": settings(metric=metric)}], seen.arms, (metric,))
    verdict = judge(claims, seen)[0]
    assert (verdict.outcome, verdict.pairs) == ("supported", 8)
    assert not any("diverged" in note for note in verdict.notes)
    beside = replace(seen, values={**seen.values, ("a", metric): np.full(8, math.nan)})
    lost = judge(claims, beside)[0]
    assert lost.outcome == "undecided" and "a diverged with 8 of 8 seeds: not favoured" in lost.notes


def test_a_finished_trial_without_a_finite_value_counts_like_one_that_diverged() -> None:
    values = np.where(np.arange(8) < 4, math.nan, 0.2 + NOISE)
    seen = replace(evidence({"a": values, "b": np.ones(8)}), finished=dict.fromkeys("ab", np.ones(8, dtype=bool)))
    verdict = one(seen, better=settings())
    assert (verdict.outcome, verdict.pairs) == ("undecided", 4)
    assert verdict.notes == ("a has no finite val/loss with 4 of 8 seeds: not favoured",)
    assert one(seen, worse=settings()).outcome == "undecided"
    poor = replace(seen, values={**seen.values, ("a", "val/loss"): 3 * values + 1})
    assert one(poor, worse=settings()).outcome == "supported", "even its survivors are worse"
    unknown = replace(seen, values={})
    assert one(unknown, better=settings()).notes == (), "an arm may lack a metric altogether"


def test_the_rule_about_diverged_arms_follows_the_metrics_direction() -> None:
    body = settings(metric="val/accuracy")
    high = apart(0.5, metric="val/accuracy", diverged={"a": [2]})
    assert one(high, better=body).outcome == "undecided"
    low = apart(-0.5, metric="val/accuracy", diverged={"a": [2]})
    assert one(low, worse=body).outcome == "supported"
    undirected = apart(0.5, metric="probe/x", diverged={"a": [2]})
    assert one(undirected, higher=settings(metric="probe/x")).outcome == "undecided"


def test_an_arm_that_always_diverged_cannot_be_the_best() -> None:
    seen = evidence(
        {"a": 1 + NOISE, "b": 1 + NOISE[::-1], "c": np.ones(8)}, diverged={"c": range(8)},
    )  # fmt: skip
    verdict = one(seen, within={"arm": "a", "of": "best", "metric": "val/loss", "margin": 0.1})
    assert [contrast.than for contrast in verdict.contrasts] == ["b"]
    assert verdict.outcome == "supported"
    assert any("out of the race" in note for note in verdict.notes)


def test_divergence_is_claimable() -> None:
    seen = evidence({"a": np.ones(8), "b": np.ones(8)}, diverged={"a": range(8)})
    body = {"arm": "a", "than": "b", "margin": 0.1}
    assert one(seen, diverges=body).outcome == "supported"
    assert one(seen, diverges=body | {"arm": "b", "than": "a"}).outcome == "refuted"
    assert one(evidence({"a": np.ones(8), "b": np.ones(8)}), diverges=body).outcome == "undecided"


def test_seeds_in_different_environment_classes_are_not_paired() -> None:
    classes = {"a": ["cpu"] * 6 + ["cuda"] * 2, "b": ["cpu"] * 8}
    verdict = one(apart(0.3, classes=classes), worse=settings())
    assert verdict.pairs == 6
    assert any("environment classes differ: seed 6, 7" in note for note in verdict.notes)


def test_an_impossible_arm_leaves_its_claims_undecided_with_the_reason() -> None:
    verdict = one(apart(0.3), worse=settings(arm="gone"))
    assert (verdict.outcome, verdict.contrasts) == ("undecided", ())
    assert verdict.notes == ("gone is impossible",)


def test_a_metric_whose_direction_nobody_knows_is_not_judged() -> None:
    seen = apart(0.5, metric="probe/x")
    claim = parse([{"text": "said", "worse": settings(metric="fresh")}], seen.arms, ["fresh"])
    verdict = judge(claim, seen)[0]
    assert verdict.outcome == "undecided"
    assert "direction" in verdict.notes[0]


def test_a_relative_margin_is_a_share_of_the_other_arms_mean() -> None:
    seen = evidence({"a": [1.0 + x for x in NOISE], "b": [2.0 + x for x in NOISE[::-1]]})
    body = {"arm": "a", "of": "b", "metric": "val/loss", "relative": 0.1}
    assert one(seen, within=body).contrasts[0].region == pytest.approx((-0.2, 0.2))


def test_the_relative_margin_pays_for_the_uncertainty_of_its_reference() -> None:
    x, y = 1 + NOISE, 1 + 20 * NOISE  # a reference that varies a lot
    body = {"arm": "a", "of": "b", "metric": "val/loss"}
    relative = one(evidence({"a": x, "b": y}), within=body | {"relative": 0.5}).contrasts[0]
    fixed = one(evidence({"a": x, "b": y}), within=body | {"margin": 0.5}).contrasts[0]
    assert relative.region == pytest.approx(fixed.region)
    # With r = .5 the margin's edge is arm - 1.5 · than: that contrast's own paired t interval must agree.
    expected = stats.ttest_1samp(x - y - 0.5 * y, 0).confidence_interval(0.9).high
    assert relative.upper - 0.5 == pytest.approx(expected)
    assert fixed.upper < relative.upper


@pytest.mark.parametrize("n", [2, 8])
def test_a_relative_margin_proves_nothing_from_equal_differences(n: int) -> None:
    body = {"arm": "a", "of": "b", "metric": "val/loss", "relative": 0.05}
    reference = 3.28 + 0.02 * (np.arange(n) % 2)
    verdict = one(evidence({"a": reference, "b": reference}), within=body)
    assert (verdict.outcome, verdict.needed) == ("undecided", None)


def test_arms_that_saturate_are_not_taken_for_equal_before_rare_failures_are_ruled_out() -> None:
    body = {"arm": "a", "of": "b", "metric": "val/accuracy", "margin": 0.02}
    verdict = one(evidence({"a": np.ones(8), "b": np.ones(8)}, "val/accuracy"), within=body)
    fewest = math.ceil(math.log(0.05) / math.log(0.98))  # (1 - 0.02)^n ≤ 0.05
    assert (verdict.outcome, verdict.needed) == ("undecided", SeedRange(fewest, fewest, ANY))
    many = one(evidence({"a": np.ones(fewest), "b": np.ones(fewest)}, "val/accuracy"), within=body)
    assert many.outcome == "supported"


def test_equal_arms_never_leave_the_edge_of_a_claim_and_no_seeds_are_asked_for() -> None:
    verdict = one(evidence({"a": 2 + NOISE, "b": 2 + NOISE}), worse=settings(margin=0.0))
    assert (verdict.outcome, verdict.needed) == ("undecided", None)


def test_no_range_of_seeds_promises_a_rate_that_they_could_not_decide() -> None:
    seen = evidence({"a": np.full(4, math.nan), "b": np.ones(4)}, diverged={"a": range(4)})
    verdict = one(seen, diverges={"arm": "a", "than": "b", "margin": 0.0})
    assert verdict.outcome == "undecided" and verdict.needed is not None and verdict.needed.low is not None
    enough = verdict.needed.low
    # at an edge of 0 both verdicts share the level, so that each has half
    p_values = [2 * rates_estimate(np.full(n, True), np.full(n, False)).p_above(0) for n in (enough, enough - 1)]
    assert p_values[0] <= 0.05 < p_values[1]


def test_divergence_is_compared_within_one_environment_class_too() -> None:
    lost = {"a": range(8)}
    seen = evidence({"a": np.full(8, math.nan), "b": np.ones(8)}, diverged=lost)
    apart_ = evidence(
        {"a": np.full(8, math.nan), "b": np.ones(8)}, diverged=lost, classes={"a": ["gpu"] * 8, "b": ["cpu"] * 8}
    )
    outcomes = [one(each, diverges={"arm": "a", "than": "b", "margin": 0.0}).outcome for each in (seen, apart_)]
    assert outcomes == ["supported", "undecided"]


def test_more_seeds_of_the_predicted_number_decide() -> None:
    generator = np.random.default_rng(8)
    seen = evidence({"a": 1.08 + generator.normal(0, 0.04, 6), "b": np.ones(6)})
    verdict = one(seen, worse=settings(margin=0.05))
    assert verdict.outcome == "undecided" and verdict.needed is not None
    low, high = verdict.needed.low, verdict.needed.high
    assert low is not None and high is not None and 6 < low <= high
    estimate = verdict.contrasts[0].estimate
    sd = estimate.standard_error * math.sqrt(6)  # type: ignore[attr-defined]
    runs = estimate.value + sd * generator.standard_normal((400, high))
    decided = [
        one(evidence({"a": 1 + run, "b": np.ones(high)}), worse=settings(margin=0.05)).outcome != "undecided"
        for run in runs
    ]
    assert np.mean(decided) > 0.8  # at the high end the power is above 80 % for the observed spread
    assert np.mean(decided) == pytest.approx(verdict.needed.chances[1], abs=0.06)


def random_study(generator: np.random.Generator) -> tuple[list[dict[str, Any]], Evidence]:
    means = generator.normal(0, 0.2, 4)
    n = int(generator.integers(3, 12))
    lost = {name: np.flatnonzero(generator.random(n) < 0.03) for name in "abcd"}
    rows = {name: mean + generator.normal(0, 0.05, n) for name, mean in zip("abcd", means, strict=True)}
    claims: list[dict[str, Any]] = [
        {"text": "1", "worse": settings(than=["b", "c"], margin=0.02)},
        {"text": "2", "better": settings(arm="d", than="c", margin=0.0)},
        {"text": "3", "within": {"arm": "c", "of": "best", "metric": "val/loss", "margin": 0.05}},
        {"text": "4", "within": {"arm": "b", "of": "a", "metric": "val/loss", "margin": 0.08}},
        {"text": "5", "diverges": {"arm": "a", "than": "d", "margin": 0.0}},
    ]
    return claims, evidence(rows, diverged=lost)


def test_a_verdict_is_what_its_intervals_say_and_what_holm_says() -> None:
    generator = np.random.default_rng(11)
    seen = {"supported": 0, "refuted": 0, "undecided": 0}
    for _ in range(120):
        claims, study = random_study(generator)
        for verdict in judge(parse(claims, study.arms, METRICS), study):
            seen[verdict.outcome] += 1
            outcomes = [contrast.outcome for contrast in verdict.contrasts]
            assert (verdict.outcome == "supported") == (set(outcomes) == {"supported"})
            assert (verdict.outcome == "refuted") == ("refuted" in outcomes)
            assert (verdict.outcome != "undecided") == (verdict.p <= verdict.level)
            assert (verdict.outcome != "undecided") == (verdict.p_adjusted <= 0.05 + 1e-12)
    assert min(seen.values()) > 12  # the agreement was tested on every outcome


BORDER = 0.1


def wrong_verdicts(differences: Sequence[float], studies: int, correlated: bool, seed: int) -> float:
    """The share of studies with any wrong verdict, each arm being off the baseline by `differences`.

    Claims at or short of the border are false. At the border itself they are as hard to tell from true as can be.
    """
    generator = np.random.default_rng(seed)
    names = [f"a{i}" for i in range(len(differences))]
    raw = [{"text": name, "worse": settings(arm=name, margin=BORDER)} for name in names]
    raw.append({"text": "all", "worse": settings(arm=names[0], than=["b", names[-1]], margin=BORDER)})
    raw.append({"text": "best", "within": {"arm": names[0], "of": "best", "metric": "val/loss", "margin": BORDER}})
    claims = parse(raw, ["b", *names], METRICS)
    false = [name for name, d in zip(names, differences, strict=True) if d <= BORDER] + ["all"]
    false += ["best"] if differences[0] >= BORDER else []
    wrong = 0
    for _ in range(studies):
        base = generator.normal(0, 0.1, 6)
        rows = {"b": base if correlated else np.zeros(6)}
        rows |= {name: d + generator.normal(0, 0.1, 6) for name, d in zip(names, differences, strict=True)}
        outcomes = {v.claim.text: v.outcome for v in judge(claims, evidence(rows))}
        wrong += any(outcome == ("supported" if text in false else "refuted") for text, outcome in outcomes.items())
    return wrong / studies


FALSE = {
    "all at the border": [BORDER] * 5,
    "others true": [BORDER, BORDER, 3.0, 3.0, 3.0],
    "others refuted": [BORDER, -3.0, -3.0, -3.0, -3.0],
    "others near": [BORDER, 0.06, 0.06, 0.0, 0.06],
}


@pytest.mark.parametrize(
    ("differences", "correlated", "studies"),
    [
        *(pytest.param(*case, 600, marks=pytest.mark.evidence) for case in itertools.product(FALSE, (True, False))),
        ("all at the border", True, 100),
    ],
)
def test_at_most_5_percent_of_studies_contain_any_wrong_verdict(
    differences: str, correlated: bool, studies: int
) -> None:
    allowed = 0.05 + 3 * math.sqrt(0.05 * 0.95 / studies)
    assert wrong_verdicts(FALSE[differences], studies, correlated, seed=1) <= allowed


@pytest.mark.evidence
def test_the_simulation_would_see_a_missing_correction(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verdicts, "holm_levels", lambda p, alpha: [2 * alpha] * len(p))
    assert wrong_verdicts([BORDER] * 5, 200, False, seed=1) > 0.15


def trained(values: Mapping[str, Sequence[float]], losses: Mapping[str, str], leaf: str = "model.size") -> Evidence:
    """Accuracies of arms whose losses are known by one letter for each seed; `leaf` is what tells them apart."""
    known = {arm: np.array(list(letters), dtype=object) for arm, letters in losses.items()}
    changes = {"a": frozenset[tuple[str, str]](), "b": frozenset({(leaf, "2")})}
    return replace(evidence(values, "val/accuracy"), losses=known, changes=changes)


CEILING = {"a": np.ones(8), "b": np.ones(8)}
ALIKE = {"arm": "a", "of": "b", "metric": "val/accuracy", "margin": 0.4}


def test_arms_that_trained_the_same_model_are_no_evidence() -> None:
    """Without their losses, eight accuracies of 1 in both would support it."""
    assert one(trained(CEILING, {}), within=ALIKE).outcome == "supported"
    verdict = one(trained(CEILING, {"a": "pqrstuvw", "b": "pqrstuvw"}), within=ALIKE)
    assert (verdict.outcome, verdict.needed, verdict.p) == ("undecided", None, 1.0)
    assert verdict.notes == ("a and b trained the same model",)
    (contrast,) = verdict.contrasts
    assert (contrast.estimate.value, contrast.estimate.n, contrast.upper) == (0.0, 8, math.inf)


def test_a_metric_at_its_ceiling_is_not_the_same_model() -> None:
    assert one(trained(CEILING, {"a": "pqrstuvw", "b": "pqrstuvx"}), within=ALIKE).outcome == "supported"
    other = {"a": np.ones(8), "b": 1 - np.arange(8) / 1000}
    measured = one(trained(other, {"a": "pqrstuvw", "b": "pqrstuvw"}), within=ALIKE)
    assert measured.outcome == "supported", "one model, measured in two ways"


def test_arms_that_are_computed_in_two_ways_may_agree_to_the_last_digit() -> None:
    for leaf in ("model.kernel._target_", "trainer.precision", "model.layers.0.kernel._target_", "optim.fused"):
        assert one(trained(CEILING, {"a": "pqrstuvw", "b": "pqrstuvw"}, leaf), within=ALIKE).outcome == "supported"
    for leaf in ("trainer.gradient_clip_val", "model.kernels", "optim.lr"):
        assert one(trained(CEILING, {"a": "pqrstuvw", "b": "pqrstuvw"}, leaf), within=ALIKE).outcome == "undecided"


def test_that_one_model_diverges_as_often_as_itself_is_no_evidence() -> None:
    said = {"arm": "a", "than": "b", "margin": 0.9}
    assert one(trained(CEILING, {}), diverges=said).outcome == "refuted"
    assert one(trained(CEILING, {"a": "pqrstuvw", "b": "pqrstuvw"}), diverges=said).outcome == "undecided"


def test_times_that_half_of_the_trials_never_come_to_leave_both_limits_open() -> None:
    """Cut off at the budget they vary less than their law; fewer than half are a mean like any other."""
    seen = evidence({"a": [9.0, 9.0, 5.0, 6.0], "b": [2.0, 3.0, 2.5, 2.2]}, metric="derived/steps")
    for missed, open_ends in (([True, True, False, False], True), ([True, False, False, False], False)):
        unreached = {("a", "derived/steps"): np.array(missed)}
        found = replace(seen, censored=frozenset({"derived/steps"}), unreached=unreached)
        assert found.flattering_limits(difference("a", "b", "derived/steps")) == (open_ends, open_ends)
        assert math.isinf(found.mean_difference("a", "b", "derived/steps").lower(0.025)) == open_ends


def test_one_seed_against_several_is_held_to_what_one_more_of_them_would_give() -> None:
    """mean ± t(n − 1) · sd · √(1 + 1/n), by hand: the mean's own interval ends at 2.2 and would call 2.3 outside."""
    many, nan = np.array([1.8, 2.2, 1.9, 2.1, 2.0]), math.nan
    half = stats.t.ppf(0.975, 4) * many.std(ddof=1)
    assert half * math.sqrt(1 / 5) < 0.3 < half * math.sqrt(1 + 1 / 5) < 0.6
    for alone, where in ((2.3, "inside"), (2.6, "outside")):
        seen = evidence({"a": [*many, nan], "b": [*[nan] * 5, alone]})
        (note,) = one(seen, lower={"arm": "b", "than": "a", "metric": "val/loss", "margin": 0.0}).notes
        assert f"the one seed of b lies {where} what one more seed of a would give" in note


def test_at_a_margin_of_0_both_verdicts_share_the_level() -> None:
    """Without any difference “better” and “the opposite” are both wrong: together they err at most at the level."""
    draw = np.random.default_rng(8)
    claims = parse([{"text": "x", "lower": settings(margin=0.0)}], "ab", ["val/loss"])
    studies, wrong = 1500, 0
    for _ in range(studies):
        values = draw.normal(size=(2, 5))
        wrong += judge(claims, evidence({"a": values[0], "b": values[1]}), 0.04)[0].outcome != "undecided"
    assert wrong / studies <= 0.04 + 3 * math.sqrt(0.04 * 0.96 / studies)
    assert parts_of_level((0.0, math.inf)) == parts_of_level((-math.inf, -0.0)) == (2, 2)
    assert parts_of_level((0.01, math.inf)) == (1, 1) and parts_of_level((-1.0, 1.0)) == (1, 2)


def test_a_p_value_that_equals_its_limit_decides() -> None:
    """Three of three seeds against a share of .2: .2^3 is .008, and so is 4 % shared by five claims."""
    values = {arm: np.ones(3) for arm in "abcde"}
    raw = [
        {"text": arm, "reaches": {"arm": arm, "metric": "val/accuracy", "value": 0.9, "above": 0.2}} for arm in "abcde"
    ]
    found = judge(parse(raw, "abcde", ["val/accuracy"]), evidence(values, "val/accuracy"), 0.04)
    assert [verdict.outcome for verdict in found] == ["supported"] * 5
    assert found[0].p == pytest.approx(0.008, rel=1e-12)
    four = judge(parse(raw, "abcde", ["val/accuracy"]), evidence(values, "val/accuracy"), 0.0399)
    assert {verdict.outcome for verdict in four} == {"undecided"}


def test_an_unpaired_difference_favours_no_arm_that_lost_trials() -> None:
    """Five seeds of each, none in common: the survivors of arm a are better, and what it lost is not known."""
    gone = [math.nan] * 5
    values = {"a": [*gone, 1.0, 1.01, 0.99, 1.02, 0.98], "b": [2.0, 2.01, 1.99, 2.02, 1.98, *gone]}
    assert one(evidence(values), better=settings()).outcome == "supported"
    lost = evidence(values, diverged={"a": [9]})
    assert one(lost, better=settings()).outcome == "undecided"
    assert one(evidence(values, diverged={"b": [4]}), better=settings()).outcome == "supported", (
        "that would be worse yet"
    )
