"""Measures of answers that are values, from sums over sequences, and which way is better."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from torch import Tensor

from swapformer.interface import Direction
from swapformer.task.measures import mean, standard_error


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
    """The good direction of each of the baselines' numbers: a large error of theirs is an easy victory."""
    return {name: "higher" if name.endswith("skill") else "lower" for name in baselines(season)}
