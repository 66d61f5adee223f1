"""Main effects and interactions against paired t tests by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from report.statistics.test_verdicts import evidence
from swapformer.report.statistics.claim_grammar import parse
from swapformer.report.statistics.grid import grid_effects, grid_verdicts
from swapformer.report.statistics.verdicts import judge

CONDITIONS = {f"size={s}, lr={r}": {"size": s, "lr": r} for s in ("s", "l") for r in ("1", "2")}


def values(n: int = 8) -> dict[str, dict[str, np.ndarray]]:
    """Arm b is 0.3 above a when small and 0.1 above it when large, whatever the rate."""
    generator = np.random.default_rng(4)
    seeds = generator.normal(0, 1, n)
    return {
        name: {
            "a": seeds + generator.normal(0, 0.05, n),
            "b": seeds + (0.3 if levels["size"] == "s" else 0.1) + generator.normal(0, 0.05, n),
        }
        for name, levels in CONDITIONS.items()
    }


def test_effects_are_paired_t_intervals_of_contrasts_over_seeds() -> None:
    rows = values()
    found = grid_effects("val/loss", "a", CONDITIONS, {name: evidence(row) for name, row in rows.items()})
    assert found is not None and found.contrasts == ("size: l − s", "lr: 2 − 1")
    (arm,) = found.arms
    d = np.array([row["b"] - row["a"] for row in rows.values()])  # s1, s2, l1, l2
    for effect, contrast in (
        (arm.main, d.mean(axis=0)),
        (arm.interactions[0], d[2:].mean(axis=0) - d[:2].mean(axis=0)),
        (arm.interactions[1], d[[1, 3]].mean(axis=0) - d[[0, 2]].mean(axis=0)),
    ):
        oracle = stats.ttest_1samp(contrast, 0).confidence_interval(0.95)
        found_here = (effect.difference, effect.lower, effect.upper)
        assert found_here == pytest.approx((contrast.mean(), oracle.low, oracle.high))
    assert arm.interactions[0].upper < 0 < arm.main.lower
    assert arm.interactions[1].lower < 0 < arm.interactions[1].upper


def test_a_seed_that_is_missing_anywhere_is_left_out_of_what_needs_all() -> None:
    rows = values()
    rows["size=l, lr=2"]["b"][3] = np.nan
    found = grid_effects("val/loss", "a", CONDITIONS, {name: evidence(row) for name, row in rows.items()})
    assert found is not None and found.arms[0].main.pairs == 7


def three_levels(n: int = 7) -> tuple[dict[str, dict[str, str]], dict[str, dict[str, np.ndarray]]]:
    """Two factors with three and two levels, three arms; c is far noisier than the others."""
    generator = np.random.default_rng(9)
    conditions = {f"k={k}, r={r}": {"k": k, "r": r} for k in "123" for r in "xy"}
    rows = {
        name: {arm: generator.normal(0.1 * float(at["k"]), 2.0 if arm == "c" else 0.3, n) for arm in "abc"}
        for name, at in conditions.items()
    }
    return conditions, rows


def test_interactions_are_against_the_first_level() -> None:
    conditions, rows = three_levels()
    found = grid_effects("val/loss", "a", conditions, {name: evidence(row) for name, row in rows.items()})
    assert found is not None and found.contrasts == ("k: 2 − 1", "k: 3 − 1", "r: y − x")
    d = np.array([row["b"] - row["a"] for row in rows.values()])  # 1x 1y 2x 2y 3x 3y
    expected = [d[[2, 3]].mean() - d[[0, 1]].mean(), d[[4, 5]].mean() - d[[0, 1]].mean()]
    assert [effect.difference for effect in found.arms[0].interactions[:2]] == pytest.approx(expected)


def test_effects_are_open_where_they_would_flatter_an_arm_that_lost_trials() -> None:
    rows = values()
    last = "size=l, lr=2"
    seen = {name: evidence(row, diverged={"b": [1, 2]} if name == last else {}) for name, row in rows.items()}
    found = grid_effects("val/loss", "a", CONDITIONS, seen)
    assert found is not None
    (arm,) = found.arms
    assert math.isfinite(arm.main.lower) and arm.main.upper == math.inf
    size, rate = arm.interactions
    assert size.upper == rate.upper == math.inf and math.isfinite(size.lower) and math.isfinite(rate.lower)
    first = {name: evidence(row, diverged={"b": [1]} if name == "size=s, lr=1" else {}) for name, row in rows.items()}
    found = grid_effects("val/loss", "a", CONDITIONS, first)
    assert found is not None and found.arms[0].interactions[0].lower == -math.inf


def test_arms_that_are_impossible_somewhere_are_named_and_those_without_seeds_have_no_effect() -> None:
    rows = values()
    for name, row in rows.items():
        row["c"] = np.full(8, math.nan)
        if name.startswith("size=s"):
            row["d"] = row["a"]
    found = grid_effects("val/loss", "a", CONDITIONS, {name: evidence(row) for name, row in rows.items()})
    assert found is not None and found.impossible == ("d",)
    assert [(row.arm, row.main.pairs) for row in found.arms] == [("b", 8), ("c", 0)]


def test_seeds_whose_trials_ran_in_several_environment_classes_are_not_paired() -> None:
    classes = {"a": ["cpu"] * 8, "b": ["gpu"] * 4 + ["cpu"] * 4}
    found = grid_effects(
        "val/loss", "a", CONDITIONS, {name: evidence(row, classes=classes) for name, row in values().items()}
    )
    assert found is not None and found.arms[0].main.pairs == 4


@pytest.mark.parametrize(
    ("differences", "outcome"),
    [((3.0, 3.0), "supported"), ((-3.0, -3.0), "refuted"), ((3.0, -3.0), "depends"), ((3.0, 0.0), "undecided")],
)
def test_a_verdict_holds_everywhere_or_depends_or_is_open(differences: tuple[float, float], outcome: str) -> None:
    noise = np.array([0.1, -0.2, 0.15, -0.05, 0.0, 0.2, -0.15, -0.05])
    claims = parse(
        [{"text": "x", "worse": {"arm": "b", "than": "a", "metric": "val/loss", "margin": 0.0}}], "ab", ["val/loss"]
    )
    verdicts = {
        name: judge(claims, evidence({"a": np.zeros(8), "b": difference + noise}))
        for name, difference in zip(("k=1", "k=2"), differences, strict=True)
    }
    (found,) = grid_verdicts(claims, verdicts)
    assert found.outcome == outcome
    expected = {
        "supported": "Supported in both conditions.",
        "refuted": "Refuted in both conditions.",
        "depends": "The verdict depends on the condition: supported with k=1, refuted with k=2.",
        "undecided": "Not decided everywhere: supported with k=1, undecided with k=2.",
    }
    assert found.text == expected[outcome]
