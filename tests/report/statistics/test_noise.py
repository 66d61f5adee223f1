"""The noise of a baseline: each number against its definition, intervals against simulated truth."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from report.store import Store
from swapformer.report.records import read
from swapformer.report.statistics.noise import (
    MetricNoise,
    deviation_interval,
    metric_noise,
    over_evaluations,
)


def test_the_noise_of_a_store_is_that_of_its_numbers(tmp_path: Path) -> None:
    """Ten evaluations on a line that falls by .1, plus ±.01 in turn: residuals of eight are .01 but for the fit."""
    store = Store(tmp_path, {"base": []}, "base", ["val/loss"], seeds=range(4))
    ends = [2.0, 2.1, 2.3, 2.2]
    for seed, end in enumerate(ends):
        rows = [(100 * at, end + 0.1 * (10 - at) + 0.01 * (-1) ** at) for at in range(1, 11)]
        store.write_trial("base", seed, {"val/loss": end}, history={"val/loss": rows})
    store.write_manifest()
    found = metric_noise(read(store.study, store.runs), "val/loss")
    assert found is not None and found.n == 4 and found.mean == pytest.approx(2.15)
    assert found.deviation == pytest.approx(np.std(ends, ddof=1)) and found.over_items == pytest.approx(0.004)
    zigzag = np.array([0.01 * (-1) ** at for at in range(8)])
    rest = zigzag - np.polyval(np.polyfit(np.arange(8), zigzag, 1), np.arange(8))
    assert found.over_evaluations == pytest.approx(math.sqrt((rest**2).sum() / 6))
    assert found.signal == pytest.approx(0.9 - 0.02) and found.signal_to_noise == pytest.approx(0.88 / found.deviation)


@pytest.mark.parametrize("seeds", [3, 5, 8, 20])
def test_so_many_seeds_find_the_difference_in_80_per_cent_of_studies(seeds: int) -> None:
    """Oracle: one-sided Student's t of simulated pairs of arms, at 5 %."""
    noise = MetricNoise("val/loss", 5, 2.0, 0.3, 0.2, 0.6, 0.0, 0.0, 1.0)
    generator = np.random.default_rng(seeds)
    x = generator.normal(noise.seen(seeds), 0.3, (4000, seeds))
    y = generator.normal(0.0, 0.3, (4000, seeds))
    p = stats.ttest_ind(x, y, axis=1, alternative="greater").pvalue
    assert (p <= 0.05).mean() == pytest.approx(0.8, abs=0.02)


def test_intervals_of_spread_cover_the_truth_in_95_per_cent() -> None:
    generator = np.random.default_rng(1)
    covered = 0
    for _ in range(2000):
        _, low, high = deviation_interval(generator.normal(0, 2.0, 5))
        covered += low <= 2.0 <= high
    assert covered / 2000 == pytest.approx(0.95, abs=0.015)


def test_what_does_not_vary_sees_nothing_and_short_curves_have_no_spread() -> None:
    still = MetricNoise("val/loss", 5, 2.0, 0.0, math.nan, math.nan, math.nan, math.nan, 1.0)
    assert math.isnan(still.seen(5)) and math.isnan(still.signal_to_noise)
    assert deviation_interval(np.array([1.0, 1.0]))[0] == 0 and math.isnan(deviation_interval(np.array([1.0]))[0])
    assert math.isnan(over_evaluations([(np.arange(3.0), np.arange(3.0))]))
