"""Span corruption: restore missing spans of a text (Raffel et al. 2020, arXiv:1910.10683, section 3.1.4)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from swapformer.errors import UsageError
from swapformer.interface import Interface
from swapformer.ranges import Count, Factor, OpenShare
from swapformer.task.base import MEASURED, Batch, Sequences, Split
from swapformer.task.measures import directions_of
from swapformer.task.text_task import BlockTask
from swapformer.task.tokeniser import END, PAD


class Spans(BlockTask):
    """Read a text in which sentinels stand for missing spans; write each sentinel with its span, then <eos>.

    `Thank you <0> me to your party <1> week <eos>` asks for `<0> for inviting <1> last <eos>`; the answer begins after
    [PAD]. Of L tokens n = rate · L are missing, in k = n / mean_length spans, both rounded and at least 1; all ways to
    cut the missing tokens into k spans, and the others into k runs before them, are equally often. So a source has
    L − n + k + 1 tokens and an answer n + k + 1, and there is no padding. `sentinels`: how many the vocabulary has.
    Lengths are those of the text, L. Spans are drawn again for each training batch and fixed in evaluation.
    UsageError: too few sentinels, a text too short for its spans, or shares that are none.
    """

    start_token: int
    end_token: int
    shortest = 2
    evaluation_stream = "spans"
    directions = directions_of(MEASURED)

    def __init__(
        self, *, rate: OpenShare = 0.15, mean_length: Factor = 3.0, sentinels: Count = 100, **settings: Any
    ) -> None:
        self.rate, self.mean_length = rate, mean_length
        self.sentinels = sentinels
        self.special_tokens = (PAD, END, *map(sentinel, range(self.sentinels)))
        super().__init__(**settings)
        for length in self.lengths_by_set.values():
            if (spans := self.gaps(length)[1]) > self.sentinels:
                raise UsageError(
                    f"task.sentinels must be at least {spans}, as many as {length} tokens have spans at "
                    f"task.rate={rate} and task.mean_length={mean_length}, but is {sentinels}; take more"
                )
        self.start_token, self.end_token = self.tokeniser.ids[PAD], self.tokeniser.ids[END]
        self._marks = torch.tensor([self.tokeniser.ids[sentinel(number)] for number in range(self.sentinels)])
        self.train_length = sum(self.gaps(self.block)) + 1
        shapes = [(length, *self.gaps(length)) for length in self.lengths_by_set.values()]
        self.max_length = max(max(length - missing, missing) + spans + 1 for length, missing, spans in shapes)

    @property
    def interface(self) -> Interface:
        return Interface(self.vocab_size, source=True)

    def gaps(self, length: int) -> tuple[int, int]:
        """The number of missing tokens of `length`, and of their spans."""
        missing = min(max(round(self.rate * length), 1), length - 1)
        return missing, min(max(round(missing / self.mean_length), 1), length - missing)

    def batch(self, split: Split, starts: Tensor, length: int, generator: torch.Generator) -> Batch:
        ids = self.windows(split, starts, length)
        missing, spans = self.gaps(length)
        runs = [random_composition(total, spans, len(ids), generator) for total in (length - missing, missing)]
        # Runs and spans take turns, a run first: ends [B,2k].
        ends = torch.stack(runs, dim=2).flatten(1).cumsum(1)
        turn = torch.searchsorted(ends, torch.arange(length).expand(len(ids), -1).contiguous(), right=True)
        missing_here, span = turn % 2 == 1, turn // 2
        mark = self._marks[span]
        before = missing_here.cumsum(1) - missing_here.long()
        # In the source a sentinel stands where its span was; in the answer, where the run before its span was.
        source = self._fill_in(length - missing + spans, torch.arange(length) - before + span, missing_here, mark, ids)
        answer = self._fill_in(missing + spans, before + span + missing_here, ~missing_here, mark, ids)
        inputs = pad(answer[:, :-1], (1, 0), value=self.start_token)
        return Batch(inputs=inputs, targets=answer, source=Sequences(inputs=source))

    def _fill_in(self, length: int, at: Tensor, marked: Tensor, mark: Tensor, ids: Tensor) -> Tensor:
        """Each token, or its mark where it is `marked`, written at its position `at`; <eos> behind: [B, length + 1]."""
        empty = torch.full((len(ids), length + 1), self.end_token)
        return empty.scatter(1, at, torch.where(marked, mark, ids))


def sentinel(number: int) -> str:
    """The token of the sentinel for the span with this number."""
    return f"<extra_id_{number}>"


def random_composition(total: int, count: int, rows: int, generator: torch.Generator) -> Tensor:
    """Random ways to write `total` as a sum of `count` numbers above 0, each equally often: [rows, count]."""
    cuts = torch.rand(rows, total - 1, generator=generator).argsort(1)[:, : count - 1].sort(1).values + 1
    edges = pad(pad(cuts, (1, 0), value=0), (0, 1), value=total)
    return edges.diff(dim=1)
