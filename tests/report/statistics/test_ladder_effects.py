"""What an arm changes over the rungs of a ladder: a line is drawn where three rungs lie on one, and nowhere else."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from swapformer.report.statistics.evidence import Evidence
from swapformer.report.statistics.ladder_effects import ArmEffect, arm_effect

COSTS = {f"x{4**at}": 1e9 * 4.0**at for at in range(4)}


def evidence(effects: np.ndarray) -> Evidence:
    """An arm `a` that differs from the baseline by [rungs, seeds], while what seeds share is much larger."""
    n = effects.shape[1]
    shared = np.random.default_rng(5).normal(2, 0.1, effects.shape)
    values = {}
    for rung, own, both in zip(COSTS, effects, shared, strict=False):
        values |= {(f"b with {rung}", "val/loss"): both, (f"a with {rung}", "val/loss"): both + own}
    names = [name for name, _ in values]
    every, none = np.full(n, True), np.full(n, False)
    return Evidence(
        tuple(names), tuple(range(n)), values, dict.fromkeys(names, every), dict.fromkeys(names, none),
        {"val/loss": "lower"},
    )  # fmt: skip


def effect(effects: np.ndarray, seen: Evidence | None = None) -> ArmEffect:
    rungs = dict(list(COSTS.items())[: len(effects)])
    found = arm_effect("a", "b", "val/loss", rungs, seen or evidence(effects))
    assert found is not None
    return found


def noise(rungs: int, seeds: int, seed: int, size: float = 0.01) -> np.ndarray:
    return np.random.default_rng(seed).normal(0, size, (rungs, seeds))


def test_each_doubling_adds_the_slope_of_the_differences_of_each_seed() -> None:
    """Against scipy's regression, seed by seed; four times the computation is two doublings."""
    differences = 0.1 + 0.03 * 2 * np.arange(3)[:, None] + noise(3, 6, 1)
    found = effect(differences)
    x = np.log2(list(COSTS.values())[:3])
    slopes = [stats.linregress(x, column).slope for column in differences.T]
    limits = stats.t.interval(0.95, 5, np.mean(slopes), stats.sem(slopes))
    assert found.line is not None and found.line.slope == pytest.approx((np.mean(slopes), *limits))
    fitted = stats.linregress(x, differences.mean(axis=1))
    assert found.line.at(2e9) == pytest.approx(fitted.intercept + fitted.slope * math.log2(2e9))
    assert [row[0] for row in found.rungs.values()] == pytest.approx(differences.mean(axis=1))
    assert "each doubling of the operations adds +0.0289 [+0.0259, +0.0319]." in found.text("b", "val/loss")


def test_two_rungs_lie_on_any_line_so_that_none_is_drawn() -> None:
    found = effect(noise(2, 5, 1))
    assert found.line is None and found.why == "a line needs 3 rungs of different computation"
    assert "no line, since a line needs 3 rungs" in found.text("b", "val/loss")


@pytest.mark.parametrize("rungs", [3, 4])
def test_rungs_that_lie_on_none_are_told_so_and_those_that_do_seldom(rungs: int) -> None:
    """1 % of lines are taken for bent; the planted bend of ten times the noise is always seen."""
    straight = [effect(0.2 + noise(rungs, 5, seed)).line is None for seed in range(600)]
    assert np.mean(straight) <= 0.02
    bent = np.zeros((rungs, 1))
    bent[1] = 0.3
    found = [effect(bent + noise(rungs, 5, seed)) for seed in range(20)]
    assert all(each.line is None and "do not lie on one (p = " in each.why for each in found)


def test_seeds_without_any_spread_are_judged_by_their_differences() -> None:
    assert effect(np.full((3, 4), 0.5)).line is not None
    bent = np.full((3, 4), 0.5)
    bent[1] = 0.6
    assert effect(bent).line is None


def test_an_arm_that_lost_trials_has_no_line() -> None:
    seen = evidence(0.2 + noise(3, 5, 1))
    name = "a with x4"
    row = seen.values[name, "val/loss"].copy()
    row[2] = math.nan
    gone = np.isnan(row)
    seen = replace(
        seen, values={**seen.values, (name, "val/loss"): row}, finished={**seen.finished, name: ~gone},
        diverged={**seen.diverged, name: gone},
    )  # fmt: skip
    found = effect(noise(3, 5, 1), seen)
    assert found.line is None and found.why == "some trials gave no number"
    assert found.rungs["x4"][2] == math.inf, "what it lost would have made it worse"


def test_an_arm_without_any_rung_has_no_effect() -> None:
    assert arm_effect("c", "b", "val/loss", COSTS, evidence(noise(4, 5, 1))) is None
