"""Overlap of splits: how many evaluated items are among the training items, counted."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import count, islice
from typing import Literal

import torch

from swapformer.task.base import Batch, Sequences, Task, target_mask


@dataclass(frozen=True)
class Overlap:
    """`shared` of `evaluated` items that were drawn for a split are among `trained` different ones of the training."""

    split: Literal["val", "test"]
    shared: int
    evaluated: int
    trained: int

    def __str__(self) -> str:
        return (
            f"{self.shared} of {self.evaluated} {self.split} items ({self.shared / self.evaluated:.1%}) are among "
            f"{self.trained} different training items"
        )


def overlap(task: Task, split: Literal["val", "test"], *, trained: int = 4096, evaluated: int = 512) -> Overlap:
    """Draw at least `trained` training items and `evaluated` of every evaluation set, and compare them whole."""
    seen = set(islice(_items(task.train_batch(0, step) for step in count()), trained))
    drawn = [
        item
        for one in task.evaluation(split)
        for item in islice(_items(map(one.batch, range(one.batches) if one.batches else count())), evaluated)
    ]
    return Overlap(split, sum(item in seen for item in drawn), len(drawn), len(seen))


def _items(batches: Iterable[Batch]) -> Iterator[bytes]:
    """Each row of the batches as bytes: its source, its inputs and its targets, padding aside."""
    for batch in batches:
        sources = [b""] * len(batch.inputs) if batch.source is None else list(_rows(batch.source))
        for source, inputs, targets in zip(sources, _rows(batch), batch.targets, strict=True):
            yield source + inputs + (targets[target_mask(targets)] if targets.dim() else targets).numpy().tobytes()


def _rows(sequences: Sequences) -> Iterator[bytes]:
    padding = (
        torch.zeros(sequences.inputs.shape[:2], dtype=torch.bool) if sequences.padding is None else sequences.padding
    )
    return (row[~filler].numpy().tobytes() for row, filler in zip(sequences.inputs, padding, strict=True))
