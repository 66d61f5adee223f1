"""The statistics held to what they promise, by simulation with an explicit generator.

What was measured here (20 000 samples each): the paired 95 % t interval covers 95 % at n = 5, 8, 10 and 30 when
differences are normal. When they are as skewed as an exponential law (skewness 2), it covers 88 % at n = 5, 90 % at
n = 8, 90 % at n = 10 and 93 % at n = 30: strongly skewed differences, such as those of runs that now and then nearly
diverge, ask for more seeds than a study of normal ones. When one run in ten fails and the others are all alike, an
equivalence that does not hold is claimed in under 5 % of studies, since arms that are alike with every seed are not
taken for equal; a t interval over the same values, with noise too small to matter, claims it in 36 % at n = 10.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy import special, stats

from report.statistics.test_verdicts import evidence
from report.store import Store
from swapformer.report.records import Records, read
from swapformer.report.statistics.claim_grammar import parse
from swapformer.report.statistics.claims import Claim
from swapformer.report.statistics.estimates import FloatArray, mean_estimate
from swapformer.report.statistics.sequential import judge_all
from swapformer.report.statistics.verdicts import judge

SAMPLES = 20_000
BORDER = 0.1


def intervals(samples: FloatArray, level: float = 0.95) -> tuple[FloatArray, FloatArray]:
    """The t intervals of many samples [samples, n] at once, held to the report's own on some of them."""
    n = samples.shape[1]
    half = stats.t.ppf(0.5 + level / 2, n - 1) * samples.std(axis=1, ddof=1) / math.sqrt(n)
    low, high = samples.mean(axis=1) - half, samples.mean(axis=1) + half
    for index in range(20):
        found, tail = mean_estimate(samples[index]), (1 - level) / 2
        assert (found.lower(tail), found.upper(tail)) == pytest.approx((low[index], high[index]))
    return low, high


def coverage(samples: FloatArray, truth: float) -> float:
    low, high = intervals(samples)
    return float(np.mean((low <= truth) & (truth <= high)))


@pytest.mark.parametrize("n", [5, 8, 10, 30])
def test_paired_intervals_cover_95_percent_of_normal_differences(n: int) -> None:
    """Two arms that share most of their noise by seed, as paired trials do."""
    generator = np.random.default_rng(n)
    common = generator.normal(0, 1.0, (SAMPLES, n))
    x, y = (common + generator.normal(0, 0.3, (SAMPLES, n)) for _ in range(2))
    assert 0.93 <= coverage(x + 0.2 - y, 0.2) <= 0.97


@pytest.mark.parametrize(("n", "expected"), [(5, 0.88), (8, 0.90), (10, 0.90), (30, 0.93)])
def test_the_coverage_of_skewed_differences_is_what_this_page_says(n: int, expected: float) -> None:
    samples = np.random.default_rng(n).exponential(1.0, (SAMPLES, n))
    assert coverage(samples, 1.0) == pytest.approx(expected, abs=0.012)


def family(size: int) -> list[Claim]:
    raw = [
        {"text": str(i), "worse": {"arm": f"a{i}", "than": "b", "metric": "val/loss", "margin": BORDER}}
        for i in range(size)
    ]
    return parse(raw, ["b", *(f"a{i}" for i in range(size))], ["val/loss"])


def shared_baseline(
    generator: np.random.Generator, studies: int, n: int, at_edge: FloatArray, opposed: bool
) -> tuple[FloatArray, FloatArray]:
    """p-values [studies, claims] of claims against one baseline: that each holds, and that it does not.

    A claim is at its edge, where it is false, or far away from it, true and false in turn. With `opposed`, every other
    claim says “better” where the rest say “worse”.
    """
    signs = np.where(np.arange(len(at_edge)) % 2, -1.0 if opposed else 1.0, 1.0)
    far = np.where(np.arange(len(at_edge)) % 4 < 2, 5.0, -5.0)
    arms = generator.normal(0, 1, (studies, len(at_edge), n))
    differences = signs[:, None] * (arms - generator.normal(0, 1, (studies, 1, n))) + np.where(at_edge, 0, far)[:, None]
    t = differences.mean(axis=2) / (differences.std(axis=2, ddof=1) / math.sqrt(n))
    return special.stdtr(n - 1, -t), special.stdtr(n - 1, t)


def holm(p: FloatArray) -> FloatArray:
    """Which p-values [studies, claims] Holm's procedure rejects at 5 %, for all studies at once."""
    order = np.argsort(p, axis=1)
    steps = np.take_along_axis(p, order, axis=1) <= 0.05 / (p.shape[1] - np.arange(p.shape[1]))
    rejected = np.zeros(p.shape, dtype=bool)
    np.put_along_axis(rejected, order, np.logical_and.accumulate(steps, axis=1), axis=1)
    return rejected


def family_wise_error(studies: int, n: int, claims: int, half_far: bool, opposed: bool) -> float:
    """The share of studies with any wrong verdict."""
    at_edge = np.arange(claims) < (claims / 2 if half_far else claims)
    supports, refutes = shared_baseline(np.random.default_rng(claims + n), studies, n, at_edge, opposed)
    decided = holm(np.minimum(supports, refutes))
    return float((decided & (supports < refutes) & at_edge).any(axis=1).mean())


@pytest.mark.parametrize("n", [3, 5, 8])
@pytest.mark.parametrize("claims", [2, 8, 30])
def test_5_percent_of_studies_whose_claims_share_a_baseline_hold_a_wrong_verdict(claims: int, n: int) -> None:
    """All of the error is used, though not exceeded: with all claims at their edges and with half of them far away.

    No proof covers that Holm's verdicts have two directions while claims depend on each other; where two claims at
    their edges point in opposite directions, .055 was measured.
    """
    studies = SAMPLES // 2
    for half_far, opposed in itertools.product((False, True), (False, True)):
        most = 0.055 if opposed else 0.05
        found = family_wise_error(studies, n, claims, half_far, opposed)
        assert found <= most + 3 * math.sqrt(0.05 * 0.95 / studies), (half_far, opposed)
        if claims == 2:
            assert found >= 0.042, "the error is not given away"


def test_the_report_decides_what_the_simulation_decides() -> None:
    size, n = 6, 8
    claims, generator = family(size), np.random.default_rng(1)
    for _ in range(40):
        rows = {f"a{i}": BORDER + generator.normal(0, 0.1, n) for i in range(size)}
        rows["b"] = generator.normal(0, 0.3, n)  # what it shares with every difference makes them paired
        rows = {arm: row if arm == "b" else row + rows["b"] for arm, row in rows.items()}
        t = np.array([stats.ttest_rel(rows[c.arm] - BORDER, rows["b"]).statistic for c in claims])
        decided = holm(np.minimum(special.stdtr(n - 1, t), special.stdtr(n - 1, -t))[None])[0]
        found = judge(claims, evidence(rows))
        assert [verdict.outcome != "undecided" for verdict in found] == list(decided)


def test_equivalence_can_be_shown_and_is_rarely_claimed_of_what_lies_at_the_margin() -> None:
    """Within ±margin: with margins of 2 standard deviations, 8 seeds show it of equal arms in over 80 % of studies."""
    claim = parse(
        [{"text": "same", "within": {"arm": "a", "of": "b", "metric": "val/loss", "margin": 0.2}}], "ab", ["val/loss"]
    )
    generator = np.random.default_rng(2)
    for truth, least, most in ((0.0, 0.8, 1.0), (0.2, 0.0, 0.05)):
        runs = generator.normal(truth, 0.1, (400, 8))
        outcomes = [judge(claim, evidence({"a": 1 + run, "b": np.ones(8)}))[0].outcome for run in runs]
        assert least <= outcomes.count("supported") / len(runs) <= most


def test_rare_failures_are_not_taken_for_equality() -> None:
    """An arm scores 1 with every seed, another 0.5 with one seed in ten: a difference of 0.05, a margin of 0.02."""
    claim = parse(
        [{"text": "same", "within": {"arm": "a", "of": "b", "metric": "val/accuracy", "margin": 0.02}}],
        "ab", ["val/accuracy"],
    )  # fmt: skip
    generator = np.random.default_rng(8)
    for n in (6, 10, 20):
        runs = np.where(generator.random((400, n)) < 0.1, 0.5, 1.0)
        outcomes = [judge(claim, evidence({"a": np.ones(n), "b": run}, "val/accuracy"))[0].outcome for run in runs]
        assert outcomes.count("supported") / len(runs) <= 0.05
    noisy = np.where(generator.random((SAMPLES, 10)) < 0.1, 0.5, 1.0) + generator.normal(0, 1e-6, (SAMPLES, 10))
    low, high = intervals(1 - noisy)
    assert np.mean((low > -0.02) & (high < 0.02)) == pytest.approx(0.36, abs=0.02)


def looked(looks: tuple[int, ...], alpha: float, seed: int) -> float:
    """How often a single claim at its border is decided at any of several looks at growing data."""
    samples = np.random.default_rng(seed).normal(BORDER, 0.1, (SAMPLES, looks[-1]))
    wrong = np.zeros(SAMPLES, dtype=bool)
    for n in looks:
        low, high = intervals(samples[:, :n], 1 - alpha)
        wrong |= (low > BORDER) | (high < BORDER)
    return float(np.mean(wrong))


def test_three_looks_together_err_with_5_percent_at_most() -> None:
    looks = (8, 14, 20)
    assert looked(looks, 0.05 / 3, seed=3) <= 0.05
    assert looked(looks, 0.05, seed=3) > 0.08, "uncorrected looks err more often, so the correction does something"


@pytest.mark.parametrize("studies", [100, pytest.param(400, marks=pytest.mark.evidence)])
def test_a_sequential_study_of_several_claims_errs_with_5_percent_at_most(studies: int, tmp_path: Path) -> None:
    """The whole procedure, claims that are decided leaving the family: two are true and clear, three at the border."""
    looks, claims = [5, 8, 11], family(5)
    store = Store(tmp_path, {"b": [], **{f"a{i}": [] for i in range(5)}}, "b", ["val/loss"], range(looks[-1]))
    store.manifest = {"looks": looks}
    store.write(lambda arm, seed: {"val/loss": 0.0})
    records = read(store.study, store.runs)
    generator = np.random.default_rng(5)
    truth = np.array([BORDER, BORDER, BORDER, 3.0, 0.5])
    wrong, at_once = 0, 0
    for _ in range(studies):
        values = {f"a{i}": truth[i] + generator.normal(0, 0.1, looks[-1]) for i in range(5)}
        verdicts = judge_all(claims, measured(records, {"b": np.zeros(looks[-1]), **values}))[""]
        wrong += any(verdict.outcome == "supported" for verdict in verdicts[:3])
        at_once += verdicts[3].outcome == "supported" and verdicts[3].look == looks[0]
    assert wrong / studies <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / studies)
    assert at_once == studies, "what is clear leaves the family at the first look"


def measured(records: Records, values: Mapping[str, FloatArray]) -> Records:
    """The same study with other results: `values[arm][seed]`."""
    found = records.metrics.copy()
    found["value"] = [values[arm][seed] for arm, seed in zip(found["arm"], found["seed"], strict=True)]
    return replace(records, metrics=found)


@pytest.fixture
def sequential(tmp_path: Path) -> Callable[..., Store]:
    def make(**more: object) -> Store:
        store = Store(tmp_path, {"b": [], "clear": [], "near": []}, "b", ["val/loss"], seeds=range(12))
        store.manifest = {"looks": [4, 8, 12], **more}
        store.claims = [
            {"text": arm, "worse": {"arm": arm, "than": "b", "metric": "val/loss", "margin": BORDER}}
            for arm in ("clear", "near")
        ]
        return store

    return make


def test_the_report_judges_look_by_look_as_the_simulation_does(sequential: Callable[..., Store]) -> None:
    """A claim that was decided at the first look keeps its verdict, although later seeds would say otherwise."""
    store = sequential()
    noise = np.random.default_rng(6).normal(0, 0.05, 12)
    for seed in range(12):
        store.write_trial("b", seed, {"val/loss": 1.0})
        store.write_trial("clear", seed, {"val/loss": (3.0 if seed < 4 else -9.0) + noise[seed]})
        store.write_trial("near", seed, {"val/loss": 1.0 + BORDER + noise[::-1][seed]})
    store.write_manifest()
    records = read(store.study, store.runs)
    claims = parse(records.manifest.claims, tuple(store.arms), store.metrics)
    clear, near = judge_all(claims, records)[""]
    assert (clear.outcome, clear.look, clear.pairs) == ("supported", 4, 4)
    assert (near.outcome, near.look, near.pairs) == ("undecided", 12, 12)
    assert near.level == pytest.approx(0.04 / 3)


def test_a_claim_that_favours_an_arm_which_diverges_later_is_undecided_again(
    sequential: Callable[..., Store],
) -> None:
    store = sequential()
    noise = np.random.default_rng(6).normal(0, 0.05, 12)
    store.claims[0] = {"text": "good", "better": {"arm": "clear", "than": "b", "metric": "val/loss", "margin": 0.0}}
    for seed in range(12):
        store.write_trial("b", seed, {"val/loss": 1.0})
        store.write_trial("clear", seed, {"val/loss": 0.5 + noise[seed]}, "finished" if seed < 8 else "diverged")
        store.write_trial("near", seed, {"val/loss": 1.0 + BORDER + noise[::-1][seed]})
    store.write_manifest()
    records = read(store.study, store.runs)
    claims = parse(records.manifest.claims, tuple(store.arms), store.metrics)
    good = judge_all(claims, records)[""][0]
    assert (good.outcome, good.look, good.p) == ("undecided", 4, 1.0)
    assert "clear diverged with 4 of 12 seeds: not favoured" in good.notes
    store.claims[0] = {"text": "bad", "worse": {"arm": "clear", "than": "b", "metric": "val/loss", "margin": 0.0}}
    store.write_manifest()
    records = read(store.study, store.runs)
    bad = judge_all(parse(records.manifest.claims, tuple(store.arms), store.metrics), records)[""][0]
    assert bad.outcome == "undecided", "that the survivors are better refutes nothing of an arm that diverges"


def test_a_look_is_judged_only_when_its_trials_have_ended(sequential: Callable[..., Store]) -> None:
    store = sequential()
    for seed in range(12):
        for arm, value in (("b", 1.0), ("clear", 1.1 + 0.2 * (seed % 2)), ("near", 1.0)):
            if not (arm == "near" and seed == 6):
                store.write_trial(arm, seed, {"val/loss": value})
    store.write_manifest()
    records = read(store.study, store.runs)
    claims = parse(records.manifest.claims, tuple(store.arms), store.metrics)
    assert {verdict.look for verdict in judge_all(claims, records)[""]} == {4}, "seed 6 of the second look is missing"
