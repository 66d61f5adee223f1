"""Masked language modelling with next-sentence prediction (Devlin et al. 2018, arXiv:1810.04805)."""

from __future__ import annotations

from functools import cached_property, partial
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from swapformer.errors import UsageError
from swapformer.interface import MAIN, Interface, Readout
from swapformer.random import stream
from swapformer.task.base import Batch, EvaluationSet, Split
from swapformer.task.division import SPLITS
from swapformer.task.masked import METRICS, MaskedTask
from swapformer.task.measures import CLASS_DIRECTIONS, directions_of
from swapformer.task.source import Source
from swapformer.task.tokeniser import CLASSIFY, PAD, SEPARATE

NEXT_SENTENCE = "next_sentence"
FOLLOWS, ELSEWHERE = 0, 1
"""The classes of the second segment: it goes on where the first ends, or is from another document."""


_DIRECTIONS = {f"{NEXT_SENTENCE}_{name}": direction for name, direction in CLASS_DIRECTIONS.items()}


class MaskedNSP(MaskedTask):
    """Predict the hidden tokens of `[CLS] first [SEP] second [SEP]`, and whether the second segment follows the first.

    In half of the pairs the second segment begins where the first one ends, in the same document; in the others it is
    from another document, any position of which is as likely. Both segments are cut to lengths drawn from 1 … block − 3
    and to their documents; while they are too long together, the longer one loses a token: the first at its beginning,
    the second at its end, so that what follows still follows. The rest of the `block` positions is padding. The tag
    `segment` is 1 on the second segment and its [SEP]. Evaluation sets are endless.
    UsageError: a split with fewer than two documents.
    """

    shortest, own_tokens = 4, 3
    tags = ("segment",)
    directions = directions_of(METRICS) | _DIRECTIONS

    def __init__(self, *, source: Source, **settings: Any) -> None:
        super().__init__(source=source, **settings)
        for name in SPLITS:
            several = int((np.diff(self.begins[name]) > 1).sum())
            if several < 2 and len(self.ids[name]):
                raise UsageError(
                    f"the {name} split of {source.description} must have two documents of two tokens or more, since a "
                    f"segment that does not follow is from another one, but has {several}; give more documents"
                )

    @property
    def interface(self) -> Interface:
        readouts = {MAIN: Readout(self.vocab_size), NEXT_SENTENCE: Readout(2, "classes", "sequence")}
        return Interface(self.vocab_size, segments=2, readouts=readouts)

    def tokens_needed(self, length: int) -> int:
        return 1

    def train_batch(self, seed: int, step: int) -> Batch:
        return self._batch("train", self.block, self.batch_size, stream("train", int(seed), int(step)))

    def evaluation(self, split: Literal["val", "test"]) -> list[EvaluationSet]:
        if len(self.ids[split]) == 0:
            return []
        return [
            EvaluationSet(name, None, partial(self._evaluation_batch, split, name, length))
            for name, length in self.lengths_by_set.items()
        ]

    def _evaluation_batch(self, split: Split, name: str, length: int, index: int) -> Batch:
        rows = max(1, self.eval_batch_size * self.block // length)
        return self._batch(split, length, rows, stream("masked", split, name, index))

    def _batch(self, split: Split, length: int, rows: int, generator: torch.Generator) -> Batch:
        follows = torch.rand(rows, generator=generator) < 0.5
        pairs = self._segments[split].draw(length - self.own_tokens, follows, generator)
        position = torch.arange(length)
        first, more = pairs.length.unsqueeze(1), pairs.more.unsqueeze(1)
        second = position > first + 1
        end = first + more + 2
        begin = torch.where(second, pairs.start.unsqueeze(1) - first - 2, (pairs.end - pairs.length).unsqueeze(1) - 1)
        ids = self.take(split, (begin + position).clamp(0, len(self.ids[split]) - 1))
        special = self.tokeniser.ids
        ids[:, 0] = special[CLASSIFY]
        ids = ids.masked_fill((position == first + 1) | (position == end), special[SEPARATE])
        ids = ids.masked_fill(position > end, special[PAD])
        inputs, targets = self.hide(ids, generator)
        return Batch(
            inputs=inputs,
            targets=targets,
            padding=position > end,
            tags={"segment": (second & (position <= end)).long()},
            labels={NEXT_SENTENCE: torch.where(follows, FOLLOWS, ELSEWHERE)},
        )

    @cached_property
    def _segments(self) -> dict[Split, PairSampler]:
        return {name: PairSampler(begins) for name, begins in self.begins.items()}


class SegmentPairs(NamedTuple):
    """The places of pairs in a split, [B] each.

    First segments are the `length` tokens up to `end`, second ones the `more` tokens from `start` on.
    """

    end: Tensor
    length: Tensor
    start: Tensor
    more: Tensor


class PairSampler:
    """Draws pairs of segments from documents that begin at `begins` [d+1], at the last of which the text ends."""

    def __init__(self, begins: NDArray[np.int64]) -> None:
        self.begins = begins
        self.inner = begins - np.arange(len(begins))
        """How many positions before each document do not begin one: those where a second segment may begin."""

    def draw(self, room: int, follows: Tensor, generator: torch.Generator) -> SegmentPairs:
        """Pairs that fit in `room` positions."""
        begins, inner = self.begins, self.inner
        rows = len(follows)
        number = _below(np.full(rows, inner[-1]), generator)
        document = np.searchsorted(inner, number, side="right") - 1
        end = begins[document] + 1 + number - inner[document]
        # All inner positions but those of the document itself; beyond it they are as many further.
        own = inner[document + 1] - inner[document]
        other = _below(inner[-1] - own, generator)
        other += np.where(other >= inner[document], own, 0)
        elsewhere = np.searchsorted(inner, other, side="right") - 1
        start = np.where(follows.numpy(), end, begins[elsewhere] + 1 + other - inner[elsewhere])
        last = begins[np.where(follows.numpy(), document, elsewhere) + 1]
        wanted = torch.randint(1, room + 1, (2, rows), generator=generator).numpy()
        length, more = truncate_pairs(
            np.minimum(end - begins[document], wanted[0]), np.minimum(last - start, wanted[1]), room
        )
        return SegmentPairs(*(torch.from_numpy(part) for part in (end, length, start, more)))


def truncate_pairs(first: NDArray[np.int64], second: NDArray[np.int64], room: int) -> tuple[NDArray[np.int64], ...]:
    """Lengths of pairs cut to their room: the longer of each, or the second of equal ones, loses token after token."""
    excess = np.maximum(first + second - room, 0)
    alone = np.minimum(excess, np.abs(first - second))
    both = excess - alone
    longer = first > second
    return first - np.where(longer, alone, 0) - both // 2, second - np.where(longer, 0, alone) - (both + 1) // 2


def _below(limits: NDArray[np.int64], generator: torch.Generator) -> NDArray[np.int64]:
    """A random whole number below each limit."""
    drawn = torch.rand(len(limits), generator=generator, dtype=torch.float64).numpy()
    return np.minimum((drawn * limits).astype(np.int64), limits - 1)
