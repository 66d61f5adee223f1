"""The task's batches as Lightning's dataloaders: pure functions of (seed, step), so a resumed run sees the same."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, replace
from itertools import pairwise
from typing import Any, NamedTuple

from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset

from swapformer.random import stream
from swapformer.task.base import IGNORE, Batch, EvaluationSet, Task


class Share(NamedTuple):
    """A part of a step's batch.

    Attributes:
        batch: the sequences of this part.
        targets: places with a target in the whole batch of the step, whose mean is the step's loss.
    """

    batch: Batch
    targets: int


def split(batch: Batch, parts: int) -> Iterator[Batch]:
    """Cut a batch into at most `parts` of nearly equal numbers of sequences."""
    rows = batch.inputs.shape[0]
    bounds = [rows * i // parts for i in range(parts + 1)]
    for low, high in pairwise(bounds):
        cut: dict[str, Any] = {f.name: _cut(getattr(batch, f.name), rows, low, high) for f in fields(batch)}
        yield replace(batch, **cut)


def _cut(value: Any, rows: int, low: int, high: int) -> Any:
    if isinstance(value, Tensor):
        return value[low:high] if value.shape[0] == rows else value
    if isinstance(value, dict):
        return {name: _cut(channel, rows, low, high) for name, channel in value.items()}
    return value


class TrainingStream(IterableDataset[Share]):
    """Batches of the steps `start` … `steps` − 1, each cut into `accumulate` parts."""

    def __init__(self, task: Task, seed: int, start: int, steps: int, accumulate: int) -> None:
        self.task, self.seed, self.start, self.steps, self.accumulate = task, seed, start, steps, accumulate

    def __len__(self) -> int:
        return self.steps * self.accumulate

    def __iter__(self) -> Iterator[Share]:
        for step in range(self.start, self.steps):
            batch = self.task.train_batch(self.seed, step)
            targets = int((batch.targets != IGNORE).sum())
            if self.accumulate == 1:
                yield Share(batch, targets)
            else:
                yield from (Share(part, targets) for part in split(batch, self.accumulate))


class EvaluationStream(IterableDataset[Batch]):
    """The first `batches` batches of an evaluation set."""

    def __init__(self, source: EvaluationSet, batches: int) -> None:
        self.source = source
        self.batches = batches if source.batches is None else min(batches, source.batches)

    def __len__(self) -> int:
        return self.batches

    def __iter__(self) -> Iterator[Batch]:
        return (self.source.batch(index) for index in range(self.batches))


def loader(dataset: IterableDataset[Any]) -> DataLoader[Any]:
    """A dataloader that passes whole batches through and leaves the global random state alone."""
    return DataLoader(dataset, batch_size=None, generator=stream("loader"))
