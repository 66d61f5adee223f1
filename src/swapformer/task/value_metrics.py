"""Metrics of answers that are values, with the standard errors of means.

torchmetrics' MeanSquaredError, MeanAbsoluteError and R2Score are the tests' oracles. They are not used here because
none of them passes over a value that is missing, and because they answer 0 where nothing was measured.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torchmetrics import Metric, MetricCollection

from swapformer.task.metrics import joined_state
from swapformer.task.value_measures import VALUE_MEASURES, LaggedErrors, Measure, ValueSums, baselines


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
    """All VALUE_MEASURES of forecasts of `size` values, compared with the `baselines`."""
    lags = {1} if season is None else {1, season}
    return _collection(VALUE_MEASURES | baselines(season), size, sorted(lags))


def _collection(measures: Mapping[str, Measure], size: int, lags: Sequence[int]) -> MetricCollection:
    metrics: dict[str, Any] = {name: ValueMetric(measure, size, lags) for name, measure in measures.items()}
    return MetricCollection(metrics, compute_groups=[list(metrics)])
