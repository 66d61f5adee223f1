"""How much a metric of one arm varies without any change: over seeds, evaluation items and evaluations in training.

    over seeds          s, the standard deviation of the final value over n seeds, with the 95 % interval of chi-squared
    over items          the root mean square of the trials' own standard errors of evaluation
    over evaluations    the deviation of a trial's last evaluations from their own line over steps, pooled over trials
    signal              how far training moved the metric: from the first evaluation of the history to the last
    seen by n seeds     the difference of two arms that both have s, uncorrelated, which a test at 5 % finds in 80 %

Arms that share data and start correlate by ρ, and then √(1 − ρ) of that difference is seen. Averaging the last k
evaluations, or the weights before the final one (`callbacks=ema`), lowers the variance over seeds s₁² to s_k²: by as
much as s₁² / s_k² times the seeds would. Its interval is that of Pitman and Morgan for the variances of correlated
pairs (1939, doi 10.1093/biomet/31.1-2.9).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy import special

from swapformer.report.records import Records
from swapformer.report.statistics.estimates import FloatArray
from swapformer.report.statistics.power import detectable

SEEDS = (3, 5, 8, 20)
AVERAGED = (2, 4, 8)
"""Numbers of last evaluations whose mean is looked at."""
LAST = 8
"""Evaluations whose spread around their line is that over evaluations."""
FEWEST = 4
ALPHA = 0.05


@dataclass(frozen=True)
class Averaging:
    """The mean of the last k evaluations against the last one alone, both of the history; or the final evaluation of
    weights that `option` averages against that of the newest weights, each with its own seeds' trials.

    `worth`: s₁² / s_k², as good as so many times the seeds, with its 95 % interval; `shift`: by how much what is
    averaged lies above what is not.
    """

    k: int | None
    option: str | None
    deviation: float
    worth: float
    lower: float
    upper: float
    shift: float

    @property
    def name(self) -> str:
        """What is averaged, in a word or two."""
        return f"mean of the last {self.k}" if self.option is None else f"weights: {self.option}"


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
    averaging: tuple[Averaging, ...]

    @property
    def signal_to_noise(self) -> float:
        """The signal over the standard deviation over seeds; nan where either is not known or nothing varies."""
        return self.signal / self.deviation if self.deviation > 0 else math.nan

    def seen(self, seeds: int, worth: float = 1.0) -> float:
        """The difference of two arms that so many seeds see, where each counts as `worth` seeds in variance.

        nan where all seeds say the same: nothing is known of their spread then.
        """
        if not self.deviation > 0:
            return math.nan
        return detectable(seeds, ALPHA, freedom=2.0) * math.sqrt(2 / worth) * self.deviation


def metric_noise(records: Records, metric: str, averages: Mapping[str, str] | None = None) -> MetricNoise | None:
    """The noise of a metric of the baseline of records of one condition; None where no trial finished with it.

    `averages`: averaging callback → the arm that is the baseline with it.
    """
    baseline = records.manifest.baseline
    rows = _rows(records, baseline, metric)
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
        (*averagings([y for _, y in curves]), *_weight_averagings(records, metric, averages or {})),
    )  # fmt: skip


def _rows(records: Records, arm: str, metric: str) -> pd.DataFrame:
    return records.metrics[(records.metrics["arm"] == arm) & (records.metrics["metric"] == metric)]


def _weight_averagings(records: Records, metric: str, averages: Mapping[str, str]) -> Iterator[Averaging]:
    """What averaging weights does, over the seeds with which both arms have a final value: three or more."""
    newest = _rows(records, records.manifest.baseline, metric).set_index("seed")["value"].astype(float)
    for option, arm in averages.items():
        averaged = _rows(records, arm, metric).set_index("seed")["value"].astype(float)
        pairs = pd.concat([newest, averaged], axis=1, join="inner").to_numpy()
        pairs = pairs[np.isfinite(pairs).all(axis=1)]
        if len(pairs) >= 3:
            yield _averaging(None, option, pairs[:, 0], pairs[:, 1])


def _averaging(k: int | None, option: str | None, plain: FloatArray, averaged: FloatArray) -> Averaging:
    """What averaging does to values of as many seeds, in their order."""
    ratio, lower, upper = variance_ratio(plain, averaged)
    shift = float((averaged - plain).mean())
    return Averaging(k, option, float(averaged.std(ddof=1)), ratio, lower, upper, shift)


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


def averagings(curves: Sequence[FloatArray]) -> tuple[Averaging, ...]:
    """What averaging the last k values of each seed's curve does: of at most half of it, for three seeds or more."""
    found = []
    for k in AVERAGED:
        if len(curves) >= 3 and all(len(values) >= 2 * k for values in curves):
            last, mean = (np.array([values[-count:].mean() for values in curves]) for count in (1, k))
            found.append(_averaging(k, None, last, mean))
    return tuple(found)


def variance_ratio(x: FloatArray, y: FloatArray) -> tuple[float, float, float]:
    """var(x) / var(y) of pairs with its 95 % interval, from K ± √(K² − 1) with K = 1 + 2 (1 − r²) t² / (n − 2)."""
    n, a, b = len(x), float(x.var(ddof=1)), float(y.var(ddof=1))
    if n < 3 or a == 0 or b == 0:
        return math.nan, math.nan, math.nan
    r = min(max(float(np.corrcoef(x, y)[0, 1]), -1.0), 1.0)
    t = float(special.stdtrit(n - 2, 0.975))
    wide = 1 + 2 * (1 - r**2) * t**2 / (n - 2)
    factor = wide + math.sqrt(wide**2 - 1)
    return a / b, a / b / factor, a / b * factor


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
