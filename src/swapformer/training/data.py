"""Dataloaders of a task's batches: pure functions of (seed, step), so that a resumed run sees the same."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, IterableDataset

from swapformer.errors import UsageError
from swapformer.random import stream
from swapformer.task.base import Batch, EvaluationSet, Sequences, Task, cut, target_mask
from swapformer.task.baselines import count_targets
from swapformer.training.ranks import Ranks

SequencesType = TypeVar("SequencesType", bound=Sequences)


class BatchShare(NamedTuple):
    """One device's part of a step's batch.

    Attributes:
        batch: the sequences of this part.
        targets: for each answer, how many targets this rank's parts of the step have. Over all ranks they are those of
            the whole batch, whose mean is the step's loss.
        num_positions: those of the parts that all ranks have at the same time.
    """

    batch: Batch
    targets: Mapping[str, int]
    num_positions: int

    @classmethod
    def whole(cls, batch: Batch) -> BatchShare:
        """All of a batch."""
        return cls(batch, _targets(batch), batch.num_positions)


def drawn_position_range(model: nn.Module) -> int | None:
    """The range from which the positions of a model's batches are drawn; None where they are not."""
    drawn = (getattr(module, "drawn_from", None) for module in model.modules())
    return next((size for size in drawn if size is not None), None)


def draw_positions(length: int, drawn_from: int, *key: object) -> Tensor:
    """`length` different numbers of 0 … drawn_from − 1 in ascending order, int64 [length], from a separate stream.

    Raises:
        ValueError: if there are not so many.
    """
    if length > drawn_from:
        raise ValueError(
            f"positions are drawn without repetition, but {length} tokens cannot have different ones of {drawn_from}; "
            "raise `drawn_from` of the position."
        )
    return torch.randperm(drawn_from, generator=stream("positions", *key))[:length].sort().values


def positions_of(model: nn.Module, length: int, *key: object) -> Tensor | None:
    """Positions for a model that draws them, int64 [length], by `draw_positions`; None for one that sees the order."""
    drawn_from = drawn_position_range(model)
    return None if drawn_from is None else draw_positions(length, drawn_from, *key)


def with_drawn_positions(batch: Batch, drawn_from: int | None, *key: object) -> Batch:
    """The batch with positions drawn by `key`: one draw for all its sequences, in which equal positions stay equal.

    A source has a draw of its own. Nothing changes where positions are not drawn.
    """
    if drawn_from is None:
        return batch
    if batch.source is not None:
        batch = replace(batch, source=_draw(batch.source, drawn_from, "source", *key))
    return _draw(batch, drawn_from, *key)


def _draw(sequences: SequencesType, drawn_from: int, *key: object) -> SequencesType:
    if sequences.position is None:
        return replace(
            sequences, position=draw_positions(sequences.inputs.shape[1], drawn_from, *key)[None], extent=None
        )
    drawn = draw_positions(int(sequences.position.max()) + 1, drawn_from, *key)
    return replace(sequences, position=drawn[sequences.position], extent=None)


class TrainingStream(IterableDataset[BatchShare]):
    """Batches of the steps `start` … `steps` − 1, each cut into `accumulate` parts, on drawn positions if asked.

    Several ranks cut the same batch into so many times more parts: between them they see all of it. Each makes its own
    parts only, where the task can.

    Raises:
        UsageError: for a batch of fewer sequences than parts.
    """

    def __init__(
        self,
        task: Task,
        seed: int,
        start: int,
        steps: int,
        accumulate: int,
        drawn_from: int | None = None,
        ranks: Ranks | None = None,
    ) -> None:
        self.task, self.seed, self.start, self.steps, self.accumulate = task, seed, start, steps, accumulate
        self.drawn_from, self.ranks = drawn_from, ranks or Ranks()

    def __len__(self) -> int:
        return self.steps * self.accumulate

    def __iter__(self) -> Iterator[BatchShare]:
        cuts, steps = self.accumulate * self.ranks.count, range(self.start, self.steps)
        if cuts == 1:
            for step in steps:
                batch = self._positioned(step)
                yield BatchShare.whole(batch)
        elif steps:
            rows = len(self.task.train_batch(self.seed, self.start).inputs)
            if rows < cuts:
                raise UsageError(
                    f"every one of {self.ranks.count} devices × {self.accumulate} parts must have a sequence, but a "
                    f"batch has {rows}; raise task.batch_size, or lower trainer.devices or "
                    "trainer.accumulate_grad_batches."
                )
            bounds = [rows * i // cuts for i in range(cuts + 1)]
            for step in steps:
                yield from self._parts(step, bounds)

    def _parts(self, step: int, bounds: Sequence[int]) -> Iterator[BatchShare]:
        """This rank's parts of a batch that is cut at `bounds`; those of a rank follow one another."""
        first = self.ranks.rank * self.accumulate
        own = bounds[first : first + self.accumulate + 1]
        batch = self._rows(step, own[0], own[-1])
        rows, targets = len(batch.inputs), _targets(batch)
        positions = batch.num_positions // rows
        for turn, (low, high) in enumerate(pairwise(own)):
            ends = bounds[turn + 1 :: self.accumulate], bounds[turn :: self.accumulate]
            together = sum(after - before for after, before in zip(*ends, strict=False))
            yield BatchShare(cut(batch, rows, low - own[0], high - own[0]), targets, positions * together)

    def _rows(self, step: int, low: int, high: int) -> Batch:
        """The sequences `low` … `high` − 1 of a batch, of which no other is made where the task can do without."""
        if self.drawn_from is None:
            return self.task.train_rows(self.seed, step, low, high)
        batch = self._positioned(step)  # one draw of positions for all of its sequences
        found: Batch = cut(batch, len(batch.inputs), low, high)
        return found

    def _positioned(self, step: int) -> Batch:
        return with_drawn_positions(self.task.train_batch(self.seed, step), self.drawn_from, self.seed, step)


def _targets(batch: Batch) -> dict[str, int]:
    """The number of targets of each answer."""
    return {name: int(target_mask(target).sum()) for name, target in batch.answers.items()}


class ItemDigest:
    """A hash of evaluated items: of what is read and asked, however it is cut into batches, and their number.

    How a model is told of them (positions, documents, tags) is no part of them. `asked`: how often each of `classes`
    answers is the right one, float64 [classes]; None of values.
    """

    def __init__(self, classes: int | None = None) -> None:
        self.items, self._hash = 0, hashlib.sha256()
        self.asked = None if classes is None else torch.zeros(classes, dtype=torch.float64)

    def update(self, batch: Batch) -> None:
        """Add the items of the next batch, which is in the machine's own memory."""
        if self.asked is not None:
            self.asked += count_targets(batch.targets, len(self.asked))
        held = [
            _numbers(batch, batch.inputs),
            *(_numbers(batch, batch.answers[name]) for name in sorted(batch.answers)),
        ]
        if batch.source is not None:
            held.append(_numbers(batch.source, batch.source.inputs))
        values, kept = (torch.cat(parts, dim=1) for parts in zip(*held, strict=True))
        counts = kept.sum(1, keepdim=True)
        whole = torch.cat([counts, values], dim=1)[torch.cat([torch.ones_like(counts, dtype=torch.bool), kept], dim=1)]
        self._hash.update(whole.numpy().tobytes())
        self.items += len(counts)

    @property
    def summary(self) -> dict[str, Any]:
        """As a record holds it."""
        return {"items": self.items, "fingerprint": self._hash.hexdigest()[:16]}


def _numbers(sequences: Sequences, values: Tensor) -> tuple[Tensor, Tensor]:
    """What is read or asked of sequences as whole numbers [B,n], of values the bits, and what is no filler [B,n]."""
    kept = torch.ones_like(values, dtype=torch.bool)
    if sequences.padding is not None and values.shape[:2] == sequences.padding.shape:
        kept &= ~sequences.padding.reshape(*sequences.padding.shape, *[1] * (values.dim() - 2))
    whole = values.view(torch.int32) if values.dtype == torch.float32 else values
    return whole.long().reshape(len(values), -1), kept.reshape(len(values), -1)


class EvaluationStream(IterableDataset[Batch]):
    """The first `batches` batches of an evaluation set, on drawn positions if asked, which are as fixed as the set.

    Each batch is added to `digest`, where there is one, as the task gives it. `ranks` share the set out: each counts as
    many batches as the others, one after the other, and the last rank also counts those that are left over. The others
    compute these with it and do not count them, since fsdp needs as many batches on every rank. A set of fewer batches
    than ranks is evaluated by each.

    Attributes:
        counted: how many of the first batches that are passed on count on this rank.
    """

    def __init__(
        self,
        source: EvaluationSet,
        batches: int,
        drawn_from: int | None = None,
        digest: ItemDigest | None = None,
        ranks: Ranks | None = None,
    ) -> None:
        self.source, self.drawn_from, self.digest = source, drawn_from, digest
        self.batches = batches if source.batches is None else min(batches, source.batches)
        rank, count = (0, 1) if ranks is None or self.batches < ranks.count else (ranks.rank, ranks.count)
        self.counted = self.batches // count
        self.own = range(rank * self.counted, (rank + 1) * self.counted)
        self.left_over = range(count * self.counted, self.batches)
        if rank == count - 1:
            self.counted += len(self.left_over)

    def __len__(self) -> int:
        return len(self.own) + len(self.left_over)

    def __iter__(self) -> Iterator[Batch]:
        for index in range(self.batches):
            passed_on = index in self.own or index in self.left_over
            if not passed_on and self.digest is None:
                continue
            batch = self.source.batch(index)
            if self.digest is not None:
                self.digest.update(batch)
            if passed_on:
                yield with_drawn_positions(batch, self.drawn_from, self.source.name, index)


def loader(dataset: IterableDataset[Any], *, ahead: bool = False, pinned: bool = False) -> DataLoader[Any]:
    """A dataloader that passes whole batches on and leaves the global random state as it is.

    `ahead`: a process of its own makes the next two batches in the meantime. `pinned`: they lie in memory from which a
    GPU copies while it computes. The batches are the same.
    """
    if ahead:
        next(iter(dataset), None)  # what is wrong with a batch is said here, in one line
    workers, each = (1, 2) if ahead else (0, None)
    context = "fork" if ahead and sys.platform == "linux" else None  # a large text is not sent to the process
    return DataLoader(
        dataset, None, False, num_workers=workers, prefetch_factor=each, multiprocessing_context=context,
        generator=stream("loader"), pin_memory=pinned,
    )  # fmt: skip
