"""Forecasting the next values of a time series."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from swapformer.errors import UsageError
from swapformer.interface import MAIN, Interface, Readout
from swapformer.random import stream
from swapformer.ranges import Count, Several, Share
from swapformer.task.base import Batch, EvaluationSet, Pieces, Split, Task
from swapformer.task.division import SPLITS
from swapformer.task.series import read_series
from swapformer.task.settings import evaluation_lengths, split_shares
from swapformer.task.value_measures import VALUE_DIRECTIONS, baseline_directions

if TYPE_CHECKING:
    from torchmetrics import MetricCollection

_EVENT = 2.0
"""Standard deviations of the training series' changes beyond which a change is an event."""


class Forecast(Task):
    """Predict each next value of a series from those before.

    `path`: a CSV file with a header, or a series that ships with swapformer, such as statsmodels:elnino. `columns`:
    those that are forecast together, each a channel (null: all). `across`: the columns of a row follow each other in
    time, as months of a year do, and make one channel. `difference`: forecast the changes from each value to the next.
    `split`: shares of training, validation and test, one after the other in time; no value is in two of them. Values
    are standardised by the training part's mean and standard deviation, so the errors are in units of the latter. Where
    a value is missing, the last one before it in its split stands for it (the training mean where there is none),
    and nothing is to be predicted.
    `season`: after how many steps the series comes round (null: it does not); for the seasonal baseline and `phase`.
    `block`: T in training; `eval_lengths`: each adds a set "@L".

    Tags: `phase`, the step in the season (only with a season), and `event`, 1 where a value differs from the one
    before by more than two standard deviations of such changes in training.
    Evaluation cuts a split into blocks that do not overlap, as Text does; values beyond the last block are left out.
    UsageError: no such file or column, a cell that is no number, a split too short for a block, a block too short
    for a season, or a channel that is constant in training.
    """

    vocab_size = 0
    tokens = ()

    def __init__(
        self,
        *,
        path: str = "statsmodels:elnino",
        columns: Sequence[str] | None = None,
        across: bool = False,
        difference: bool = False,
        season: Several | None = None,
        split: Sequence[Share] = (0.6, 0.2, 0.2),
        block: Count = 24,
        eval_lengths: Sequence[Count | str] = (),
        batch_size: Count = 16,
        eval_batch_size: Count | None = None,
    ) -> None:
        self.path = str(path)
        values = read_series(self.path, columns, across)
        if difference:
            values = np.diff(values, axis=0)
        self._prepare(values, season, split, block, eval_lengths, batch_size, eval_batch_size)

    def _prepare(
        self,
        values: NDArray[np.float64],
        season: Several | None,
        split: Sequence[Share],
        block: Count,
        eval_lengths: Sequence[int | str],
        batch_size: Count,
        eval_batch_size: Count | None,
    ) -> None:
        """Cut and standardise the values [n,C] of the series."""
        self.block = self.train_length = self.longest_trained = block
        self.batch_size = batch_size
        self.eval_batch_size = eval_batch_size or batch_size
        self.eval_lengths = evaluation_lengths("eval_lengths", eval_lengths, self.block)
        self.max_length = max(self.block, *self.eval_lengths, 0)
        self.season = season
        if self.season is not None and (shortest := min(self.block, *self.eval_lengths, self.block)) <= self.season:
            raise UsageError(
                f"task.block and task.eval_lengths must exceed task.season={self.season}, so that a block holds the "
                f"same time of the season twice, but {shortest} does not; take longer blocks, or task.season=null"
            )
        self.tags = ("event",) if self.season is None else ("event", "phase")
        self._lengths = self._cut(len(values), split_shares(split))
        self._targets = self._standardise(values)
        self._inputs = self._fill(self._targets)
        self._events = self._find_events()
        self.directions = VALUE_DIRECTIONS | baseline_directions(self.season)

    @property
    def interface(self) -> Interface:
        channels = self._targets.shape[1]
        return Interface(0, channels=channels, readouts={MAIN: Readout(channels, "values", "position")})

    def crowded_batch(self) -> str | None:
        blocks = self._lengths[0] - self.block
        if self.batch_size <= blocks:
            return None
        return (
            f"a batch must not be larger than the training series, but task.batch_size={self.batch_size} is more than "
            f"the {blocks} blocks that it has; take task.batch_size={blocks} or less, or a longer series"
        )

    def train_batch(self, seed: int, step: int) -> Batch:
        starts = torch.randint(
            self._lengths[0] - self.block, (self.batch_size,), generator=stream("train", int(seed), int(step))
        )
        return self._blocks(starts, self.block)

    def evaluation(self, split: Literal["val", "test"]) -> list[EvaluationSet]:
        start, length = self._bounds(split)
        if length == 0:
            return []
        # All lengths share one order of regions as long as the longest, so that they score the same values.
        regions = torch.randperm((length - 1) // self.max_length, generator=stream("series", split)) * self.max_length
        sets = []
        for name, size in ({"": self.block} | {f"@{size}": size for size in self.eval_lengths}).items():
            starts = (start + regions.unsqueeze(1) + torch.arange(self.max_length // size) * size).flatten()
            batches = Pieces(starts, self.eval_batch_size * self.block // size)
            sets.append(EvaluationSet(name, len(batches), partial(self._evaluation_batch, batches, size)))
        return sets

    def metrics(self, answer: str = MAIN) -> MetricCollection:
        from swapformer.task.value_metrics import forecast_metrics  # late: torchmetrics takes seconds

        return forecast_metrics(self._targets.shape[1], self.season)

    def fingerprint(self) -> str:
        """SHA-256 of the standardised values and of where the splits begin: not of where the file lay."""
        header = json.dumps([self._targets.shape, self._lengths]).encode()
        return hashlib.sha256(header + b"\0" + self._targets.tobytes()).hexdigest()

    def _evaluation_batch(self, batches: Sequence[Tensor], size: int, index: int) -> Batch:
        return self._blocks(batches[index], size)

    def _blocks(self, starts: Tensor, length: int) -> Batch:
        """The blocks of `length` values that begin at `starts` [B], with the values after each as targets."""
        within = starts.numpy()[:, None] + np.arange(length)
        tags = {"event": torch.from_numpy(self._events[within])}
        if self.season is not None:
            tags["phase"] = torch.from_numpy(within % self.season)
        return Batch(
            inputs=torch.from_numpy(self._inputs[within]),
            targets=torch.from_numpy(self._targets[within + 1]),
            tags=tags,
        )

    def _bounds(self, split: Split) -> tuple[int, int]:
        index = SPLITS.index(split)
        return sum(self._lengths[:index]), self._lengths[index]

    def _cut(self, count: int, fractions: tuple[float, float, float]) -> tuple[int, int, int]:
        first, second = int(fractions[0] * count), int((fractions[0] + fractions[1]) * count)
        second = count if fractions[2] == 0 else second
        lengths = (first, second - first, count - second)
        for name, length, fraction in zip(SPLITS, lengths, fractions, strict=True):
            needed = (self.block if name == "train" else self.max_length) + 1
            if length < needed and fraction > 0:
                raise UsageError(
                    f"the {name} split of {self.path!r} must have at least {needed} values for task.block={self.block} "
                    f"and task.eval_lengths={list(self.eval_lengths)}, but has {length}; take a longer series, "
                    "shorter blocks, or another task.split"
                )
        return lengths

    def _standardise(self, values: NDArray[np.float64]) -> NDArray[np.float32]:
        training = values[: self._lengths[0]]
        if not all(np.unique(column[np.isfinite(column)]).size > 1 for column in training.T):
            raise UsageError(f"every column of {self.path!r} must vary in its training part; leave out what does not")
        return ((values - np.nanmean(training, axis=0)) / np.nanstd(training, axis=0)).astype(np.float32)

    def _fill(self, values: NDArray[np.float32]) -> NDArray[np.float32]:
        """Each missing value as the last one before it in its split, or 0, the training mean, where there is none."""
        last = np.where(np.isnan(values), -1, np.arange(len(values))[:, None])
        for split in SPLITS:
            start, length = self._bounds(split)
            part = last[start : start + length]
            np.maximum.accumulate(part, axis=0, out=part)
        filled: NDArray[np.float32] = np.take_along_axis(np.nan_to_num(values), last, axis=0)
        return np.where(last < 0, np.float32(0), filled)

    def _find_events(self) -> NDArray[np.int64]:
        """[n] 1 where any channel jumps; the first value of a split has none before it."""
        change = np.diff(self._inputs, axis=0, prepend=self._inputs[:1])
        for split in SPLITS:
            change[self._bounds(split)[0] : self._bounds(split)[0] + 1] = 0
        spread = change[1 : self._lengths[0]].std(axis=0)
        return (np.abs(change) > _EVENT * spread).any(axis=1).astype(np.int64)
