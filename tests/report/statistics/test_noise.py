"""The noise of a baseline: each number against its definition, intervals against simulated truth."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from report.store import Store
from swapformer.report.figures import svg
from swapformer.report.figures.noise_plot import noise_plot
from swapformer.report.records import read
from swapformer.report.statistics.noise import (
    MetricNoise,
    averagings,
    deviation_interval,
    metric_noise,
    over_evaluations,
    variance_ratio,
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
    assert [each.k for each in found.averaging] == [2, 4]
    assert found.averaging[0].shift == pytest.approx(0.05 - 0.01) and found.averaging[0].worth == pytest.approx(1.0)
    with svg.settings():
        figure = noise_plot([found])
    assert figure is not None and "val/loss,5," in figure.csv and "mean of the last 4" in figure.svg


def test_averaged_weights_are_compared_over_the_seeds_that_both_have(tmp_path: Path) -> None:
    """Variances of 1 … 5 and of half of it differ by four; the sixth seed of the average diverged."""
    store = Store(tmp_path, {"base": [], "base_ema": [], "base_last": []}, "base", ["val/loss"], seeds=range(6))
    values = [1.0, 4.0, 2.0, 5.0, 3.0, 90.0]
    for seed, value in enumerate(values):
        store.write_trial("base", seed, {"val/loss": value})
        lost = seed == 5
        store.write_trial(
            "base_ema", seed, {} if lost else {"val/loss": value / 2 - 1}, "diverged" if lost else "finished"
        )
        store.write_trial(
            "base_last", seed, {"val/loss": value} if seed < 2 else {}, "finished" if seed < 2 else "diverged"
        )
    store.write_manifest()
    records = read(store.study, store.runs)
    found = metric_noise(records, "val/loss", {"ema": "base_ema", "last": "base_last"})
    assert found is not None and [(each.k, each.option) for each in found.averaging] == [(None, "ema")]
    (ema,) = found.averaging
    assert (
        ema.worth == pytest.approx(4.0)
        and ema.lower == pytest.approx(4.0)
        and ema.deviation == pytest.approx(np.std([0.5, 2, 1, 2.5, 1.5], ddof=1))
    )
    assert ema.shift == pytest.approx(-3 / 2 - 1) and ema.name == "weights: ema"
    without = metric_noise(records, "val/loss")
    assert without is not None and without.averaging == ()
    with svg.settings():
        figure = noise_plot([found])
    assert figure is not None and "weights: ema" in figure.svg


@pytest.mark.parametrize("seeds", [3, 5, 8, 20])
def test_so_many_seeds_find_the_difference_in_80_per_cent_of_studies(seeds: int) -> None:
    """Oracle: one-sided Student's t of simulated pairs of arms, at 5 %."""
    noise = MetricNoise("val/loss", 5, 2.0, 0.3, 0.2, 0.6, 0.0, 0.0, 1.0, ())
    generator = np.random.default_rng(seeds)
    x = generator.normal(noise.seen(seeds), 0.3, (4000, seeds))
    y = generator.normal(0.0, 0.3, (4000, seeds))
    p = stats.ttest_ind(x, y, axis=1, alternative="greater").pvalue
    assert (p <= 0.05).mean() == pytest.approx(0.8, abs=0.02)
    assert noise.seen(seeds, worth=4.0) == pytest.approx(noise.seen(seeds) / 2)


def test_intervals_of_spread_cover_the_truth_in_95_per_cent() -> None:
    generator = np.random.default_rng(1)
    covered = 0
    for _ in range(2000):
        _, low, high = deviation_interval(generator.normal(0, 2.0, 5))
        covered += low <= 2.0 <= high
    assert covered / 2000 == pytest.approx(0.95, abs=0.015)
    covered = 0
    law = np.array([[1.0, 0.6], [0.6, 0.5]])  # variances 1 and .5, correlated: a ratio of 2
    for _ in range(2000):
        x, y = generator.multivariate_normal([0, 0], law, 6).T
        _, low, high = variance_ratio(x, y)
        covered += low <= 2.0 <= high
    assert covered / 2000 == pytest.approx(0.95, abs=0.015)


def test_averaging_is_worth_seeds_where_evaluations_vary_on_their_own() -> None:
    """Seeds' own levels have deviation 1, each evaluation 1 more: the last one has variance 2, a mean of four 1.25."""
    generator = np.random.default_rng(2)
    curves = list(generator.normal(0, 1, (400, 1)) + generator.normal(0, 1, (400, 16)))
    found = {each.k: each for each in averagings(curves)}
    assert found[4].worth == pytest.approx(2 / 1.25, rel=0.1) and found[4].lower > 1
    assert found[8].lower < 2 / 1.125 < found[8].upper
    assert averagings([np.arange(16.0)] * 2) == ()  # of two seeds nothing is said


def test_what_does_not_vary_sees_nothing_and_short_curves_have_no_spread() -> None:
    still = MetricNoise("val/loss", 5, 2.0, 0.0, math.nan, math.nan, math.nan, math.nan, 1.0, ())
    assert math.isnan(still.seen(5)) and math.isnan(still.signal_to_noise)
    assert deviation_interval(np.array([1.0, 1.0]))[0] == 0 and math.isnan(deviation_interval(np.array([1.0]))[0])
    assert math.isnan(over_evaluations([(np.arange(3.0), np.arange(3.0))]))
    with svg.settings():
        assert noise_plot([still]) is None
