"""The baseline's exchange rate: what a difference in a loss is worth in steps of its own curve."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from report.store import Store
from swapformer.report.build import build
from swapformer.report.records import read
from swapformer.report.statistics.exchange_rate import ExchangeRate, _text, exchange_rate, tail_slope

STEPS = list(range(100, 2001, 100))


def logarithmic(end: float, slope: float, noise: float = 0.0, seed: int = 0) -> list[tuple[int, float]]:
    """L(t) = end − slope · ln(t / 2000), with noise."""
    drawn = np.random.default_rng(seed).normal(0, noise, len(STEPS)) if noise else np.zeros(len(STEPS))
    return [(step, end - slope * math.log(step / 2000) + float(e)) for step, e in zip(STEPS, drawn, strict=True)]


def store_of(folder: Path, slopes: list[float], metric: str = "val/loss") -> Store:
    store = Store(folder, {"base": [], "better": ["x=1"], "far": ["x=2"]}, "base", [metric], seeds=range(len(slopes)))
    for seed, slope in enumerate(slopes):
        for arm, less in (("base", 0.0), ("better", 0.1), ("far", -2.0)):
            end = 2.0 - less + 0.001 * ((seed * 3) % 5 if arm == "better" else 0)
            store.write_trial(arm, seed, {metric: end}, history={metric: logarithmic(end, slope)})
    store.write_manifest()
    return store


def test_a_difference_is_worth_the_steps_that_change_the_loss_as_much() -> None:
    """L(t) = 2 − .5 ln(t / T): .1 less is at t = T exp(.2), and .1 more at T exp(−.2)."""
    steps = np.array(STEPS, dtype=float)
    values = np.array([value for _, value in logarithmic(2.0, 0.5)])
    assert tail_slope(steps, values) == pytest.approx(-0.5)
    rate = ExchangeRate("val/loss", 0.5, 0.4, 0.625, 5)
    more, low, high = rate.steps(-0.1, -0.1, -0.1)
    assert 2.0 - 0.5 * math.log(1 + more) == pytest.approx(1.9)
    assert (low, high) == pytest.approx((math.exp(0.16) - 1, math.exp(0.25) - 1))
    _, low, high = rate.steps(0.05, -0.02, 0.12)
    assert (low, high) == pytest.approx((math.exp(-0.12 / 0.4) - 1, math.exp(0.02 / 0.4) - 1)), "the outermost ones"
    edge = 0.5 * math.log(2)
    assert all(math.isnan(each) for each in rate.steps(edge + 1e-6, 0.0, 1.0))  # not seen in half of the steps
    assert math.isfinite(rate.steps(edge - 1e-6, 0.3, 0.4)[0])
    assert rate.steps(0.1, -0.5, 0.5)[1:] == (-math.inf, math.inf)


def test_a_difference_that_may_be_none_is_worth_nothing_sure(tmp_path: Path) -> None:
    """No interval that leaves out zero stands beside one that holds it."""
    rate = ExchangeRate("val/loss", 0.5, 0.4, 0.625, 5)
    said = {
        "open": (-0.001, -0.059, 0.057),
        "sure": (0.1, 0.05, 0.15),
        "wide": (0.1, -0.5, 0.5),
        "far": (9.0, 8.0, 10.0),
    }
    text = _text(rate, "base", said)
    assert "open from 13 % fewer to 16 % more steps; sure 18 % [7.7, 31] fewer steps;" in text
    assert "wide from over 50 % fewer to over 100 % more steps; far fewer, beyond what the second half changes." in text


def test_the_line_is_that_of_the_second_half_alone() -> None:
    steps = np.array(STEPS, dtype=float)
    values = np.array([value for _, value in logarithmic(2.0, 0.5)])
    broken = np.where(steps < 1000, 99.0, values)
    assert tail_slope(steps, broken) == pytest.approx(-0.5)
    assert math.isnan(tail_slope(np.array([100.0]), np.array([1.0])))
    assert math.isnan(tail_slope(np.zeros(0), np.zeros(0)))


def test_the_interval_covers_the_true_rate_in_95_per_cent_of_studies(tmp_path: Path) -> None:
    """Oracle: slopes of single curves with normal noise are normal, so that t over five of them has its level."""
    steps, covered = np.array(STEPS, dtype=float), 0
    for study in range(400):
        rows = [logarithmic(2.0, 0.5, 0.05, 10 * study + seed) for seed in range(5)]
        slopes = np.array([-tail_slope(steps, np.array([v for _, v in row])) for row in rows])
        half = 2.776445 * slopes.std(ddof=1) / math.sqrt(5)
        covered += abs(slopes.mean() - 0.5) <= half
    assert 0.93 <= covered / 400 <= 0.97


def test_it_stands_in_the_table_the_page_and_the_text(tmp_path: Path) -> None:
    store = store_of(tmp_path, [0.49, 0.5, 0.51, 0.5, 0.5])
    report = build(store.study, store.runs)
    rate = exchange_rate(read(store.study, store.runs), "val/loss")
    assert rate is not None and rate.slope == pytest.approx(0.5) and rate.lower < 0.5 < rate.upper
    (said,) = [each for each in report.as_dict()["design"] if each.startswith("What ")]
    assert said.startswith("What 0.01 of val/loss is worth: 2 % [2, 2.1] more steps of base")
    assert "better 22 % [21, 23] more steps" in said and "far fewer, beyond what the second half changes" in said
    for name in ("table.md", "report.html"):
        assert said in (store.study / "report" / name).read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("slopes", "metric"), [([0.5, -0.5, 0.5], "val/loss"), ([0.5], "val/loss"), ([0.5, 0.5, 0.51], "val/accuracy")]
)
def test_what_no_longer_falls_or_is_no_loss_has_no_rate(slopes: list[float], metric: str, tmp_path: Path) -> None:
    store = store_of(tmp_path, slopes, metric)
    assert exchange_rate(read(store.study, store.runs), metric) is None
