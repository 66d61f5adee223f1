"""The variation of a metric of one arm without any change: over seeds, evaluation items and evaluations in training.

    over seeds          s, the standard deviation of the final value over n seeds, with the 95 % interval of chi-squared
    over items          the root mean square of the trials' own standard errors of evaluation
    over evaluations    the deviation of a trial's last evaluations from their own line over steps, pooled over trials
    signal              how far training moved the metric: from the first evaluation of the history to the last
    seen by n seeds     the difference of two arms that both have s, uncorrelated, which a test at 5 % finds in 80 %

Arms that share data and start correlate by ρ, and then √(1 − ρ) of that difference is seen.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import special

from swapformer.report.records import Records
from swapformer.report.statistics.estimates import FloatArray
from swapformer.report.statistics.power import detectable

SEEDS = (3, 5, 8, 20)
LAST = 8
"""Evaluations whose spread around their line is that over evaluations."""
FEWEST = 4
ALPHA = 0.05


@dataclass(frozen=True)
class MetricNoise:
    """The noise of one metric over `n` seeds; nan where it is not known. `seen`: number of seeds → difference."""

    metric: str
    n: int
    mean: float
    deviation: float
    lower: float
    upper: float
    over_items: float
    over_evaluations: float
    signal: float

    @property
    def signal_to_noise(self) -> float:
        """The signal over the standard deviation over seeds; nan where either is not known or nothing varies."""
        return self.signal / self.deviation if self.deviation > 0 else math.nan

    def seen(self, seeds: int) -> float:
        """The difference of two arms that so many seeds see; nan where all seeds agree and their spread is unknown."""
        if not self.deviation > 0:
            return math.nan
        return detectable(seeds, ALPHA, freedom=2.0) * math.sqrt(2) * self.deviation


def metric_noise(records: Records, metric: str) -> MetricNoise | None:
    """The noise of a metric of the baseline of records of one condition; None where no trial finished with it."""
    rows = records.metrics
    rows = rows[(rows["arm"] == records.manifest.baseline) & (rows["metric"] == metric)]
    values = rows["value"].to_numpy(dtype=float)
    if not len(values):
        return None
    errors = rows["standard_error"].to_numpy(dtype=float)
    known = errors[np.isfinite(errors)]
    curves = _curves(records, metric)
    deviation, lower, upper = deviation_interval(values)
    return MetricNoise(
        metric, len(values), float(values.mean()), deviation, lower, upper,
        float(np.sqrt((known**2).mean())) if len(known) else math.nan,
        over_evaluations(curves),
        abs(float(np.mean([y[-1] - y[0] for _, y in curves]))) if curves else math.nan,
    )  # fmt: skip


def deviation_interval(values: FloatArray) -> tuple[float, float, float]:
    """The standard deviation of values with the 95 % interval of a normal law, which equal values do not have."""
    n = len(values)
    if n < 2:
        return math.nan, math.nan, math.nan
    s = float(values.std(ddof=1))
    if s == 0:
        return 0.0, math.nan, math.nan
    low, high = (s * math.sqrt((n - 1) / float(special.chdtri(n - 1, tail))) for tail in (0.025, 0.975))
    return s, low, high


def over_evaluations(curves: Sequence[tuple[FloatArray, FloatArray]]) -> float:
    """The standard deviation of the last evaluations of curves (steps, values) around the line of each; nan if none."""
    squares, freedom = 0.0, 0
    for steps, values in curves:
        x, y = steps[-LAST:], values[-LAST:]
        if len(y) >= FEWEST:
            residuals = y - np.polyval(np.polyfit(x, y, 1), x)
            squares, freedom = squares + float((residuals**2).sum()), freedom + len(y) - 2
    return math.sqrt(squares / freedom) if freedom else math.nan


def _curves(records: Records, metric: str) -> list[tuple[FloatArray, FloatArray]]:
    """The finished curves of the baseline, seed by seed, without what is no finite number."""
    histories = records.histories
    if histories.empty:
        return []
    own = histories[
        (histories["arm"] == records.manifest.baseline)
        & (histories["metric"] == metric)
        & (histories["status"] == "finished")
        & np.isfinite(histories["value"].astype(float))
    ]
    return [
        (rows["step"].to_numpy(dtype=float), rows["value"].to_numpy(dtype=float))
        for _, rows in own.sort_values("step").groupby("seed")
        if len(rows) > 1
    ]
