"""The worth of a difference in a loss, in training steps: the baseline's exchange rate, from the end of its own curve.

In the second half of training the loss is taken to fall along a line over the logarithm of the step,

    L(t) = L(T) − b · ln(t / T),     T/2 ≤ t ≤ T,

with a least-squares b for each seed. A difference d is then worth exp(d / b) − 1 of the steps: what else the baseline
would train, or save, to change its loss by as much. Its interval is that of Student's t over the seeds' b. It is one
training's own curve, whose learning rate falls towards the end; a training that was planned to be longer falls
otherwise. A difference of more than the line spans, b · ln 2, lies outside of what was seen, and gets no number.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from swapformer.report import number_format
from swapformer.report.records import Records
from swapformer.report.statistics.arm_summary import ArmRow
from swapformer.report.statistics.estimates import FloatArray, mean_estimate
from swapformer.report.statistics.evidence import Evidence
from swapformer.results.moments import family_of, split_moment

FEWEST_POINTS = 2
"""Evaluations that the second half must have."""


@dataclass(frozen=True)
class ExchangeRate:
    """The slope b of a metric at the end of the baseline's curve, with its 95 % interval over so many seeds."""

    metric: str
    slope: float
    lower: float
    upper: float
    seeds: int

    def steps(self, difference: float) -> tuple[float, float, float]:
        """The worth of a rise of the loss by `difference`, as a fraction of the steps, and its limits.

        nan beyond the half of the training that the slope was seen in.
        """
        shares = [math.expm1(min(abs(difference) / b, 700.0)) for b in (self.slope, self.upper, self.lower)]
        known = abs(difference) <= self.slope * math.log(2)
        return (shares[0], shares[1], shares[2]) if known else (math.nan, math.nan, math.nan)


def tail_slope(steps: FloatArray, values: FloatArray) -> float:
    """−b of a curve's second half by least squares over the logarithm of the step; nan with too few points."""
    tail = (steps >= steps.max() / 2) & np.isfinite(values) & (steps > 0) if len(steps) else np.zeros(0, dtype=bool)
    if tail.sum() < FEWEST_POINTS:
        return math.nan
    x = np.log(steps[tail])
    x = x - x.mean()
    return float((x * values[tail]).sum() / (x**2).sum())


def exchange_rate(records: Records, metric: str) -> ExchangeRate | None:
    """The exchange rate of the baseline of records of one condition.

    None for what is no loss, where fewer than two seeds have their curve, or where it is not sure that it still falls.
    """
    base = split_moment(family_of(metric)[0])[0]
    if base != metric or metric.rpartition("/")[2] != "loss" or records.histories.empty:
        return None
    histories = records.histories
    own = histories[
        (histories["arm"] == records.manifest.baseline)
        & (histories["metric"] == metric)
        & (histories["status"] == "finished")
    ]
    slopes = [
        -tail_slope(rows["step"].to_numpy(dtype=float), rows["value"].to_numpy(dtype=float))
        for _, rows in own.groupby("seed")
    ]
    known = np.array([slope for slope in slopes if math.isfinite(slope)])
    lower, upper = mean_estimate(known).limits
    if len(known) < 2 or not lower > 0 or not math.isfinite(upper):
        return None
    return ExchangeRate(metric, float(known.mean()), lower, upper, len(known))


def exchange_sentences(records: Records, rows: Sequence[ArmRow], evidence: Evidence) -> list[str]:
    """The exchange rates of one condition in words, each with what the difference of every arm is worth.

    An arm that was evaluated on other data than the baseline has no difference that is worth anything.
    """
    baseline = records.manifest.baseline
    found = []
    for metric in records.manifest.metrics:
        rate = exchange_rate(records, metric)
        differences = {row.arm: row.summaries[metric].paired for row in rows}
        if rate is not None:
            known = {
                arm: each.difference
                for arm, each in differences.items()
                if each is not None and not evidence.evaluated_apart(arm, baseline, metric)
            }
            found.append(_text(rate, baseline, known))
    return found


def _text(rate: ExchangeRate, baseline: str, differences: Mapping[str, float]) -> str:
    unit = 10.0 ** math.floor(math.log10(rate.slope / 10))  # at most a tenth of the slope: a few per cent of the steps
    text = (
        f"What {number_format.compact(unit)} of {rate.metric} is worth: {_percent(rate.steps(unit))} more steps of "
        f"{baseline}, by the end of its own curve ({rate.seeds} seeds)."
    )
    worth = []
    for arm, difference in differences.items():
        shares = rate.steps(difference)
        sign = "more" if difference < 0 else "fewer"
        if not math.isfinite(shares[0]):
            worth.append(f"{arm} {sign}, beyond what the second half changes")
            continue
        value, low, high = (share if difference < 0 else share / (1 + share) for share in shares)
        worth.append(f"{arm} {_percent((value, low, high))} {sign} steps")
    return f"{text} The differences of arms are worth: {'; '.join(worth)}." if worth else text


def _percent(shares: tuple[float, float, float]) -> str:
    """`2.1 % [1.9 %, 2.4 %]`."""
    value, low, high = (f"{100 * share:.2g}" for share in shares)
    return f"{value} % [{low}, {high}]"
