"""The worth of a difference in a loss, in training steps: the baseline's exchange rate, from the end of its own curve.

In the second half of training the loss is taken to fall along a line over the logarithm of the step,

    L(t) = L(T) − b · ln(t / T),     T/2 ≤ t ≤ T,

with a least-squares b for each seed. A difference d to the baseline is then worth exp(−d / b) − 1 of the steps: what
else the baseline would train, or save, to change its loss by as much. Its limits are the outermost ones that the 95 %
intervals of d and b allow together. It is one training's own curve, whose learning rate falls towards the end; a
training that was planned to be longer falls otherwise. A difference of more than the line spans, b · ln 2, lies outside
of what was seen, and gets no number; a limit beyond it is told as `over 100 %` or `over 50 %`.
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

    def steps(self, difference: float, low: float, high: float) -> tuple[float, float, float]:
        """The worth of a difference with its limits `low` and `high`, as a fraction of the steps, and its limits.

        Positive for a lower loss: the baseline would need more steps. nan beyond the half of the training that the
        slope was seen in; limits beyond it are infinite.
        """
        if not abs(difference) <= self.slope * math.log(2):
            return math.nan, math.nan, math.nan
        ends = [_worth(end, slope) for end in (low, high) for slope in (self.lower, self.upper)]
        return math.expm1(-difference / self.slope), min(ends), max(ends)


def _worth(difference: float, slope: float) -> float:
    beyond = not abs(difference) <= slope * math.log(2)
    return math.copysign(math.inf, -difference) if beyond else math.expm1(-difference / slope)


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
                arm: (each.difference, each.lower, each.upper)
                for arm, each in differences.items()
                if each is not None and not evidence.evaluated_apart(arm, baseline, metric)
            }
            found.append(_text(rate, baseline, known))
    return found


def _text(rate: ExchangeRate, baseline: str, differences: Mapping[str, tuple[float, float, float]]) -> str:
    unit = 10.0 ** math.floor(math.log10(rate.slope / 10))  # at most a tenth of the slope: a few per cent of the steps
    value, low, high = (f"{100 * share:.2g}" for share in rate.steps(-unit, -unit, -unit))
    text = (
        f"What {number_format.compact(unit)} of {rate.metric} is worth: {value} % [{low}, {high}] more steps of "
        f"{baseline}, by the end of its own curve ({rate.seeds} seeds)."
    )
    worth = [f"{arm} {_in_words(*rate.steps(*of), of[0])}" for arm, of in differences.items()]
    return f"{text} The differences of arms are worth: {'; '.join(worth)}." if worth else text


def _in_words(value: float, low: float, high: float, difference: float) -> str:
    """`2.1 % [1.9, 2.4] more steps`, or where the sign is open `from 14 % fewer to 19 % more steps`."""
    if math.isnan(value):
        return f"{'more' if difference < 0 else 'fewer'}, beyond what the second half changes"
    if low < 0 < high:
        return f"from {_share(low)} % fewer to {_share(high)} % more steps"
    near, far = sorted((low, high), key=abs)
    return f"{_share(value)} % [{_share(near)}, {_share(far)}] {'more' if value > 0 else 'fewer'} steps"


def _share(worth: float) -> str:
    if math.isinf(worth):
        return "over 100" if worth > 0 else "over 50"
    return f"{100 * abs(worth):.2g}"
