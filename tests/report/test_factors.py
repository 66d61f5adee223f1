"""Main effects and interactions: against paired t tests by hand, and the analysis of variance against F = t²."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from report.test_verdicts import evidence
from swapformer.report.claims import parse
from swapformer.report.everywhere import everywhere
from swapformer.report.factors import effects
from swapformer.report.verdicts import judge

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
    found = effects("val/loss", "a", CONDITIONS, {name: evidence(row) for name, row in rows.items()})
    assert found is not None and found.contrasts == ("size: l − s", "lr: 2 − 1")
    (arm,) = found.arms
    d = np.array([row["b"] - row["a"] for row in rows.values()])  # s1, s2, l1, l2
    for effect, contrast in (
        (arm.main, d.mean(axis=0)),
        (arm.interactions[0], d[2:].mean(axis=0) - d[:2].mean(axis=0)),
        (arm.interactions[1], d[[1, 3]].mean(axis=0) - d[[0, 2]].mean(axis=0)),
    ):
        oracle = stats.ttest_1samp(contrast, 0).confidence_interval(0.95)
        assert (effect.value, effect.lower, effect.upper) == pytest.approx((contrast.mean(), oracle.low, oracle.high))
    assert arm.interactions[0].upper < 0 < arm.main.lower
    assert arm.interactions[1].lower < 0 < arm.interactions[1].upper


def test_the_analysis_of_variance_agrees_with_the_contrasts() -> None:
    """With two levels each, every term has one degree of freedom, so that F = t² and p is that of the paired t test."""
    rows = values()
    found = effects("val/loss", "a", CONDITIONS, {name: evidence(row) for name, row in rows.items()})
    assert found is not None and found.seeds == 8
    terms = {term.name: term for term in found.terms}
    assert set(terms) == {"arm", "size", "lr", "arm × size", "arm × lr", "size × lr", "arm × size × lr"}
    d = np.array([row["b"] - row["a"] for row in rows.values()])
    for name, contrast in (("arm", d.mean(axis=0)), ("arm × size", d[2:].mean(axis=0) - d[:2].mean(axis=0))):
        oracle = stats.ttest_1samp(contrast, 0)
        assert (terms[name].f, terms[name].p) == pytest.approx((oracle.statistic**2, oracle.pvalue))
        assert terms[name].freedom == (1, 7)


def test_a_seed_that_is_missing_anywhere_is_left_out_of_what_needs_all() -> None:
    rows = values()
    rows["size=l, lr=2"]["b"][3] = np.nan
    found = effects("val/loss", "a", CONDITIONS, {name: evidence(row) for name, row in rows.items()})
    assert found is not None and (found.seeds, found.arms[0].main.n) == (7, 7)
    lonely = {name: evidence({arm: row[:1] for arm, row in each.items()}) for name, each in values().items()}
    found = effects("val/loss", "a", CONDITIONS, lonely)
    assert found is not None and found.terms == ()


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
    (found,) = everywhere(claims, verdicts)
    assert found.outcome == outcome
    expected = {
        "supported": "Supported in both conditions.",
        "refuted": "Refuted in both conditions.",
        "depends": "The verdict depends on the condition: supported with k=1, refuted with k=2.",
        "undecided": "Not decided everywhere: supported with k=1, undecided with k=2.",
    }
    assert found.text == expected[outcome]
