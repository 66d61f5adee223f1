"""A long generated series with two periods, and events whose effect lasts."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from swapformer.errors import UsageError
from swapformer.interface import MAIN, Interface, Readout
from swapformer.random import stream
from swapformer.ranges import Count, Natural, OpenShare, Positive, Several, Share
from swapformer.task.forecast import Forecast


class Seasons(Forecast):
    """Predict each next value of a generated series with two periods p and q, and levels that events announce.

    x_t = u_t + v_t + s·l_t + σ·e_t. u and v come round: u_t = ρ·u_{t−p} + √(1 − ρ²)·e′_t, and v likewise with q, each
    of variance 1/2, so that a forecast follows from what stood a period before, and no shape can be learned by heart.
    An event, on average every `event_every` steps, announces a level: there x is the level itself. It comes into force
    `delay` steps later and stays until that of the next event does. Events cannot be foreseen, and nothing is to be
    predicted there. e, e′ and the levels are independent, of mean 0 and variance 1. A model is given two channels, x
    and whether an event is announced, and predicts x.

    `length`: n, of the whole series. `periods`: [p, q]; p is the season of `phase` and of the seasonal baseline.
    `persistence`: ρ. `level`: s. `noise`: σ. `series`: which series is drawn, whatever the seed.
    Tags: `phase`, the step in the season p; `event`, 1 where an event is announced. The other settings are Forecast's.
    UsageError: a number out of range, or a block that is no longer than the first period.
    """

    def __init__(
        self,
        *,
        length: Count = 20000,
        periods: Sequence[Several] = (12, 60),
        persistence: OpenShare = 0.9,
        event_every: Several = 50,
        delay: Natural = 0,
        level: Positive = 1.0,
        noise: Positive = 0.3,
        series: Natural = 0,
        split: Sequence[Share] = (0.7, 0.2, 0.1),
        block: Count = 192,
        eval_lengths: Sequence[Count | str] = (),
        batch_size: Count = 16,
        eval_batch_size: Count | None = None,
    ) -> None:
        if len(periods) != 2 or periods[0] == periods[1]:
            raise UsageError(f"task.periods must be two different numbers, such as [12,60], not {list(periods)}")
        self.periods = tuple(periods)
        self._announced, series_values = seasons(
            length=length,
            periods=self.periods,
            persistence=persistence,
            event_every=event_every,
            delay=delay,
            level=level,
            noise=noise,
            series=series,
        )
        self.path = "the generated series"
        values = np.where(self._announced, np.nan, series_values)[:, None]
        self._prepare(values, self.periods[0], split, block, eval_lengths, batch_size, eval_batch_size)
        training = values[: self._lengths[0]]
        standard = (series_values - np.nanmean(training)) / np.nanstd(training)
        self._inputs = np.stack([standard, self._announced], axis=1).astype(np.float32)

    @property
    def interface(self) -> Interface:
        return Interface(0, channels=2, readouts={MAIN: Readout(1, "values", "position")})

    def fingerprint(self) -> str:
        """SHA-256 of the standardised values, of the announced levels, and of where the splits begin."""
        return hashlib.sha256(super().fingerprint().encode() + self._inputs.tobytes()).hexdigest()

    def _find_events(self) -> NDArray[np.int64]:
        return self._announced.astype(np.int64)


def seasons(
    *,
    length: int,
    periods: Sequence[int],
    persistence: float,
    event_every: int,
    delay: int,
    level: float,
    noise: float,
    series: int,
) -> tuple[NDArray[np.bool_], NDArray[np.float64]]:
    """The places where events are announced [n], and the values [n] of the series that `Seasons` describes."""

    def draws(name: str) -> NDArray[np.float64]:
        generator = stream("seasons", series, name)
        return torch.randn(length, generator=generator, dtype=torch.float64).numpy()

    announced = torch.rand(length, generator=stream("seasons", series, "events")).numpy() < 1 / event_every
    announced[0] = True
    last = np.maximum.accumulate(np.where(announced, np.arange(length), 0))
    in_force = np.concatenate([np.zeros(min(delay, length), dtype=np.int64), last])[:length]
    drawn = level * draws("levels")
    comes_round = np.zeros(length)
    for order, period in enumerate(periods):
        part = draws(f"period {order}")
        for start in range(period, length, period):
            now = part[start : start + period]
            now[:] = persistence * part[start - period : start - period + len(now)] + np.sqrt(1 - persistence**2) * now
        comes_round += np.sqrt(0.5) * part
    values = np.where(announced, drawn, comes_round + drawn[in_force] + noise * draws("noise"))
    return announced, values
