"""The base of synthetic tasks: items drawn at random, split by their content, and padded on the right."""

from __future__ import annotations

import hashlib
import inspect
import json
from abc import abstractmethod
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import Literal

import torch
from torch import Tensor

from swapformer.errors import UsageError
from swapformer.random import stream
from swapformer.ranges import Count
from swapformer.task.base import IGNORE, MEASURED, Batch, Direction, EvaluationSet, Split, Task
from swapformer.task.content_split import SHARES, ContentSplit
from swapformer.task.layout import BatchBlocks, ItemLayout, close_gaps, padding_or_none
from swapformer.task.measures import directions_of
from swapformer.task.settings import PassesSettings, evaluation_lengths, length_range

_SAMPLED, _MANY, _FOUND_BY = 64, 61, 8192
"""Where so many of so few draws differ there are many items; otherwise so many draws find them all, or nearly."""
_MOST_DRAWN = 300_000_000
"""Symbols that may be drawn to see how many items each length has: about ten seconds' work."""
_FRUITLESS = 50
"""Draws without an item of the split after which there is none."""


class Synthetic(PassesSettings, Task):
    """Base of tasks on random items; loss and metrics are only on those tokens that the ones before them determine.

    Items of `lengths` (shortest, longest) are drawn for training and for the evaluation set "", every length equally
    often (up to the rounding of the splits' shares); the set "@L" holds items of length L only. Sequences begin at
    position 0 and are padded on the right. Evaluation items are drawn with replacement from their split, without end,
    `eval_batch_size` at a time (null: `batch_size`).

    Items consist of the tokens before "<pad>", with which their content is filled up.
    Training batches are made in blocks, which are pure functions of the seed and the block's number: many small tensors
    take as long as one large one.
    """

    directions = directions_of(MEASURED)
    separator = " "
    shortest = 1
    """The least length of an item."""
    rows_at_once = 1024
    """About so many items make a block of training batches."""
    one_stream_each = False
    """Whether each batch of a block has a random stream of its own, instead of one for the block."""
    held_out = True
    """Whether the splits share no item."""
    shares: Mapping[Split, float] = SHARES
    """Of the items, for each split."""
    same_at_each_length = False
    """Whether an item does not depend on its length, so that it must be in one split at every length."""
    ordered_operands = False
    """Whether the parts of an item in another order are another item, which may be in another split."""
    remedy = "make the items more varied"
    """What to do where a length has too few different items."""

    def __init__(
        self,
        *,
        lengths: Sequence[int],
        eval_lengths: Sequence[int | str] = (),
        batch_size: Count = 32,
        eval_batch_size: Count | None = None,
    ) -> None:
        self.lengths = length_range("lengths", lengths, self.shortest)
        self.longest_trained = self.lengths[1]
        self.eval_lengths = evaluation_lengths("eval_lengths", eval_lengths, self.longest_trained, self.shortest)
        self.require_room(max(*self.lengths, *self.eval_lengths))
        self.batch_size = batch_size
        self.eval_batch_size = eval_batch_size or batch_size
        self.vocab_size, alphabet = len(self.tokens), self.tokens.index("<pad>")
        trained = range(self.lengths[0], self.longest_trained + 1)
        drawn = _SAMPLED * (sum(self.eval_lengths) + len(trained) * sum(self.lengths) // 2)
        if self.held_out and drawn > _MOST_DRAWN:
            raise UsageError(
                f"to count the items of {len(trained) + len(self.eval_lengths):,} lengths up to {trained[-1]:,} takes "
                f"{drawn:,} draws, but {_MOST_DRAWN:,} are the most; choose fewer or shorter task.lengths "
                f"and task.eval_lengths: [{trained[-1]},{trained[-1]}] is one"
            )
        self.mixture = torch.arange(trained[0], trained[-1] + 1)
        every_length = sorted({*self.mixture.tolist(), *self.eval_lengths})
        self.train_length = self.tokens_at(self.longest_trained)
        self.max_length = self.tokens_at(every_length[-1])
        self.summaries = SUMMARIES if every_length[-1] > self.longest_trained else {}
        self.splits = ContentSplit(
            alphabet, self.width_at(every_length[-1]), every_length[-1], self.shares, self.ordered_operands
        )
        everything = None
        for length in every_length if self.held_out else ():
            if length == every_length[0] or not self.same_at_each_length:
                everything = self.list_items(length)
            if everything is not None:
                self.splits.list_all(length, everything, self.remedy)
        self._blocks = BatchBlocks(self._block, self.batch_size, max(1, self.rows_at_once // self.batch_size))

    def require_room(self, longest: int) -> None:
        """UsageError where items of the longest length cannot be made of the task's symbols."""

    @abstractmethod
    def tokens_at(self, length: int) -> int:
        """T of a batch whose longest item has `length`."""

    @abstractmethod
    def draw(self, generator: torch.Generator, lengths: Tensor, longest: int) -> Tensor:
        """Random items [N,P,W] of `lengths` [N], W = `width_at` the longest, which need not be among them.

        P parts that may be exchanged without making another item. Behind `width_at` its own length an item is filled
        with the alphabet's size, and before that it does not depend on the longest.
        """

    @abstractmethod
    def write(self, content: Tensor, lengths: Tensor, longest: int) -> ItemLayout:
        """Items [N,P,W] as they are written, with L = T + 1, T = `tokens_at` the longest."""

    def width_at(self, length: int) -> int:
        """W of an item of a length."""
        return length

    def list_items(self, length: int) -> Tensor | None:
        """All items of a length [N,P,W], found by drawing; None where there are many."""

        def some(count: int) -> Tensor:
            return self.splits.distinct(self.draw(stream("items", length), torch.full((count,), length), length))

        return some(_FOUND_BY) if len(some(_SAMPLED)) < _MANY else None

    def settings(self) -> dict[str, object]:
        """The settings that the data depend on; evaluation's batches are data themselves.

        `ordered_operands`, which came later, is among them only where it says something.
        """
        names = inspect.signature(type(self)).parameters
        silent = {"eval_batch_size", *(["ordered_operands"] if not self.ordered_operands else [])}
        return {name: getattr(self, name) for name in names if name not in silent}

    def belongs(self, split: Split, content: Tensor, lengths: Tensor) -> Tensor:
        """[N] bool: whether items are of a split."""
        if self.held_out:
            return self.splits.contains(split, content, lengths)
        return torch.ones_like(lengths, dtype=torch.bool)

    def sample(self, generator: torch.Generator, split: Split, mixture: Tensor, count: int) -> tuple[Tensor, Tensor]:
        """`count` random items of a split with their lengths, each length as often as it stands in `mixture`.

        They are drawn in surplus, and those of other splits are thrown away.
        """
        longest = int(mixture.max())
        kept: list[tuple[Tensor, Tensor]] = []
        missing, fruitless = count, 0
        while missing > 0:
            surplus = int(1.3 * missing / self.splits.shares[split]) + 8
            lengths = mixture[torch.randint(len(mixture), (surplus,), generator=generator)]
            content = self.draw(generator, lengths, longest)
            mine = self.belongs(split, content, lengths).nonzero().squeeze(1)[:missing]
            kept.append((content[mine], lengths[mine]))
            missing -= len(mine)
            fruitless = 0 if len(mine) else fruitless + 1
            if fruitless == _FRUITLESS:
                raise UsageError(f"the {split} split must have items, but none was found; {self.remedy}")
        contents, counts = zip(*kept, strict=True)
        return torch.cat(contents), torch.cat(counts)

    def training_items(self, length: int) -> int | None:
        """The number of different items of a length that training has; None where there are many."""
        return self.splits.training_items.get(length)

    def crowded_batch(self) -> str | None:
        for length, times in Counter(self.mixture.tolist()).items():
            items, share = self.training_items(length), times / len(self.mixture)
            if items is not None and self.batch_size * share > items:
                return (
                    f"a batch must not hold more items of a length than training has, but of task.batch_size="
                    f"{self.batch_size} about {self.batch_size * share:.0f} are of length {length}, of which there are "
                    f"{items}; take task.batch_size={int(items / share)} or less"
                )
        return None

    def train_batch(self, seed: int, step: int) -> Batch:
        return self._blocks.batch(int(seed), int(step))

    def _block(self, seed: int, block: int) -> Batch:
        """The training batches of a block as one."""
        ahead = self._blocks.ahead
        if self.one_stream_each:
            steps = range(block * ahead, (block + 1) * ahead)
            drawn = [self.items(stream("train", seed, step)) for step in steps]
            contents, lengths = (torch.cat(parts) for parts in zip(*drawn, strict=True))
        else:
            rows = ahead * self.batch_size
            contents, lengths = self.sample(stream("train", seed, block), "train", self.mixture, rows)
        return self.collate(contents, lengths, self.longest_trained)

    def items(self, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """The items of one training batch."""
        return self.sample(generator, "train", self.mixture, self.batch_size)

    def evaluation(self, split: Literal["val", "test"]) -> list[EvaluationSet]:
        mixtures = {"": self.mixture} | {f"@{length}": torch.tensor([length]) for length in self.eval_lengths}
        return [
            EvaluationSet(name, None, partial(self._evaluation_batch, split, name, mixture))
            for name, mixture in mixtures.items()
        ]

    def _evaluation_batch(self, split: Split, name: str, mixture: Tensor, index: int) -> Batch:
        items = self.sample(stream(split, name, index), split, mixture, self.eval_batch_size)
        return self.collate(*items, int(mixture.max()))

    def collate(self, content: Tensor, lengths: Tensor, longest: int) -> Batch:
        """The batch of items [B,P,W] of `lengths` [B] up to the longest."""
        written = self.write(content, lengths, longest)
        filler = self.splits.alphabet
        kept = written.tokens != filler
        tokens = close_gaps(kept, written.tokens, filler)
        scored = close_gaps(kept, written.scored, False)
        count = kept.sum(1) - 1 if written.inputs is None else written.inputs
        padding = torch.arange(tokens.shape[1] - 1) >= count.unsqueeze(1)
        return Batch(
            inputs=tokens[:, :-1].masked_fill(padding, filler),
            targets=tokens[:, 1:].masked_fill(~scored[:, 1:], IGNORE),
            padding=padding_or_none(padding),
            tags={name: close_gaps(kept, tag, 0)[:, :-1] for name, tag in written.tags.items()},
        )

    def summarise(self, values: Mapping[str, float]) -> dict[str, float]:
        return extrapolation(values, self.longest_trained)

    def fingerprint(self) -> str:
        """SHA-256 of the settings and of first batches: a change of the generator shows although no setting changed."""
        digest = hashlib.sha256(json.dumps([type(self).__name__, self.settings()], sort_keys=True).encode())
        first = self.collate(*self.items(stream("train", 0, 0)), self.longest_trained)
        for batch in (first, *(self.evaluation(split)[0].batch(0) for split in ("val", "test"))):
            given = [batch.inputs, batch.targets, *(batch.tags[name] for name in self.tags)]
            digest.update(b"".join(tensor.numpy().tobytes() for tensor in given))
        return digest.hexdigest()


SUMMARIES: dict[str, Direction] = {"extrapolation_area": "higher", "longest_90": "higher"}
SOLVED = 0.9
"""The exact match above which a length counts as solved."""


def extrapolation(values: Mapping[str, float], trained: int) -> dict[str, float]:
    """The SUMMARIES of one split's metrics; none where no length beyond `trained` was measured.

    `extrapolation_area`: the area under exact match against length from `trained` to the longest length, straight
    between the lengths measured, over its width: 1 where every length is solved. `longest_90`: the longest length
    measured with an exact match above SOLVED there and at every shorter one; nothing between lengths is assumed; 0
    where not even the shortest has it.
    `values`: metrics by name, such as `exact_match@64`; those of the set "" count at `trained`, the longest length of
    training, unless that length has a set of its own.
    """
    measured = {
        int(name.removeprefix("exact_match@")): value
        for name, value in values.items()
        if name.startswith("exact_match@")
    }
    if not measured or max(measured) <= trained:
        return {}
    points = sorted(({trained: values["exact_match"]} | measured).items())
    beyond = [point for point in points if point[0] >= trained]
    area = sum((right - left) * (low + high) / 2 for (left, low), (right, high) in pairwise(beyond))
    longest = 0
    for length, value in points:
        if not value > SOLVED:
            break
        longest = length
    return {"extrapolation_area": area / (beyond[-1][0] - trained), "longest_90": float(longest)}
