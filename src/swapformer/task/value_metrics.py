"""Metrics of answers that are values, with the standard errors of means.

torchmetrics' MeanSquaredError, MeanAbsoluteError and R2Score are the tests' oracles. They are not used here because
none of them passes over a value that is missing, and because they answer 0 where nothing was measured.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torchmetrics import Metric, MetricCollection

from swapformer.task.base import Direction
from swapformer.task.metrics import joined_state, mean, standard_error


class LaggedErrors(NamedTuple):
    """Errors of two forecasts at positions that have a target some steps before too [N,C], and their number.

    `own`: squared errors of the model. `naive`: those of the earlier target taken as the forecast.
    """

    own: Tensor
    naive: Tensor
    counts: Tensor


class ValueSums(NamedTuple):
    """Sums over the targets of each evaluated sequence [N,C], float64, C values in an answer.

    `squared`, `absolute`: of the errors. `counts`: how many targets. `totals`, `squares`: of the targets.
    `lagged`: by how many steps.
    """

    squared: Tensor
    absolute: Tensor
    counts: Tensor
    totals: Tensor
    squares: Tensor
    lagged: dict[int, LaggedErrors]


Measure = Callable[[ValueSums], Tensor]


def loss(rows: ValueSums) -> Tensor:
    """Mean squared error of a target value."""
    return mean(rows.squared.sum(1), rows.counts.sum(1))


def loss_se(rows: ValueSums) -> Tensor:
    """Standard error of `loss` over the evaluated sequences."""
    return standard_error(rows.squared.sum(1), rows.counts.sum(1))


def mae(rows: ValueSums) -> Tensor:
    """Mean absolute error of a target value."""
    return mean(rows.absolute.sum(1), rows.counts.sum(1))


def mae_se(rows: ValueSums) -> Tensor:
    """Standard error of `mae` over the evaluated sequences."""
    return standard_error(rows.absolute.sum(1), rows.counts.sum(1))


def r2(rows: ValueSums) -> Tensor:
    """1 − Σ(y − ŷ)² / Σ(y − ȳ)², ȳ the evaluated targets' own mean in each channel; sums over all channels."""
    spread = rows.squares.sum(0) - rows.totals.sum(0).square() / rows.counts.sum(0).clamp(min=1)
    return 1 - rows.squared.sum() / spread.sum()


VALUE_MEASURES: dict[str, Measure] = {measure.__name__: measure for measure in (loss, loss_se, mae, mae_se, r2)}

VALUE_DIRECTIONS: dict[str, Direction] = {"loss": "lower", "mae": "lower", "r2": "higher"}


def baselines(season: int | None) -> dict[str, Measure]:
    """Forecasts that need no model: the value before, and the value `season` steps before, by mean squared error.

    `naive_loss`, `seasonal_loss`: over the positions of a sequence that have such a value in it. `skill`,
    `seasonal_skill`: 1 − the model's mean squared error over the same positions / theirs; above 0 is better.
    """
    lags = {"naive_loss": 1, "skill": 1}
    if season is not None:
        lags |= {"seasonal_loss": season, "seasonal_skill": season}
    return {name: partial(_skill if name.endswith("skill") else _naive_loss, lag) for name, lag in lags.items()}


def _naive_loss(lag: int, rows: ValueSums) -> Tensor:
    return mean(rows.lagged[lag].naive, rows.lagged[lag].counts)


def _skill(lag: int, rows: ValueSums) -> Tensor:
    return 1 - mean(rows.lagged[lag].own, rows.lagged[lag].naive)


def baseline_directions(season: int | None) -> dict[str, Direction]:
    """Which way each of the baselines' numbers is better: a large error of theirs is an easy victory."""
    return {name: "higher" if name.endswith("skill") else "lower" for name in baselines(season)}


class ValueMetric(Metric):
    """One measure of answers that are values; NaN where nothing was measured.

    `update(answer, targets)`: both [B,T,C], or both [B,C] where a sequence has one answer; NaN among the targets is
    none. `size`: C. `lags`: how far back the baselines look. All measures keep the same state, as in SequenceMetric.
    """

    full_state_update = False
    rows: list[Tensor]

    def __init__(self, measure: Measure, size: int, lags: Sequence[int] = ()) -> None:
        super().__init__()
        self.measure, self.size, self.lags = measure, size, tuple(lags)
        self.add_state("rows", default=[], dist_reduce_fx="cat")

    def update(self, answer: Tensor, targets: Tensor) -> None:
        if targets.ndim == 2:
            answer, targets = answer.unsqueeze(1), targets.unsqueeze(1)
        there = ~targets.isnan()
        known = targets.to(answer.dtype).masked_fill(~there, 0)
        error = torch.where(there, answer - known, 0)
        sums = [error.square(), error.abs(), there, known, known.square()]
        for lag in self.lags:
            both = there[:, lag:] & there[:, :-lag]
            off = known[:, lag:] - known[:, :-lag]
            sums += [error[:, lag:].square() * both, off.square() * both, both]
        self.rows.append(torch.stack([one.sum(1) for one in sums], dim=1))

    def compute(self) -> Tensor:
        return self.measure(self._values()).to(device=self.device, dtype=torch.float32)

    def _values(self) -> ValueSums:
        rows = joined_state(self.rows, torch.empty(0, 5 + 3 * len(self.lags), self.size))
        rows = rows[rows[:, 2].sum(1) > 0]
        lagged = {lag: LaggedErrors(*rows[:, 5 + 3 * n : 8 + 3 * n].unbind(1)) for n, lag in enumerate(self.lags)}
        squared, absolute, counts, totals, squares = rows[:, :5].unbind(1)
        return ValueSums(squared, absolute, counts, totals, squares, lagged)


def value_metrics(size: int) -> MetricCollection:
    """All VALUE_MEASURES of answers of `size` values as one collection that goes through each batch once."""
    return _collection(VALUE_MEASURES, size, ())


def forecast_metrics(size: int, season: int | None) -> MetricCollection:
    """All VALUE_MEASURES of forecasts of `size` values beside the `baselines`."""
    lags = {1} if season is None else {1, season}
    return _collection(VALUE_MEASURES | baselines(season), size, sorted(lags))


def _collection(measures: Mapping[str, Measure], size: int, lags: Sequence[int]) -> MetricCollection:
    metrics: dict[str, Any] = {name: ValueMetric(measure, size, lags) for name, measure in measures.items()}
    return MetricCollection(metrics, compute_groups=[list(metrics)])
