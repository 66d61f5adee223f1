"""Span corruption: restore what is missing (Raffel et al. 2020, arXiv:1910.10683, section 3.1.4)."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import partial
from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import pad
from torchmetrics import MetricCollection

from swapformer.errors import UsageError
from swapformer.interface import MAIN, Interface
from swapformer.random import stream
from swapformer.task.base import Batch, EvaluationSet, Places, Split
from swapformer.task.metrics import directions_of, sequence_metrics
from swapformer.task.settings import evaluation_lengths, whole_number
from swapformer.task.source import Source
from swapformer.task.text_task import TextTask
from swapformer.task.tokeniser import END, PAD, Tokeniser

_METRICS = ("loss", "loss_se", "perplexity", "accuracy", "accuracy_se", "exact_match", "exact_match_se")


class Spans(TextTask):
    """Source: a block of text in which sentinels stand for missing spans. Answer: each sentinel with its span, <eos>.

    `Thank you <0> me to your party <1> week <eos>` asks for `<0> for inviting <1> last <eos>`; the answer begins after
    [PAD]. Of L tokens n = rate · L are missing, in k = n / mean_length spans, both rounded and at least 1; all ways to
    cut the missing tokens into k spans, and the others into k runs before them, are equally often. So a source has
    L − n + k + 1 places and an answer n + k + 1, and there is no padding. `sentinels`: how many the vocabulary has.
    Lengths are those of the text, L. Spans are drawn anew for each training batch and fixed in evaluation, which goes
    through a split as Text does.
    UsageError: too few sentinels, a text too short for its spans, or shares that are none.
    """

    start_token: int
    end_token: int
    directions = directions_of(_METRICS)

    def __init__(
        self,
        *,
        source: Source,
        tokeniser: Tokeniser,
        split: Sequence[float] = (0.9, 0.05, 0.05),
        block: int = 64,
        eval_lengths: Sequence[int | str] = (),
        batch_size: int = 16,
        rate: float = 0.15,
        mean_length: float = 3.0,
        sentinels: int = 100,
    ) -> None:
        if not isinstance(rate, int | float) or isinstance(rate, bool) or not 0 < rate < 1:
            raise UsageError(f"task.rate must be a share between 0 and 1, but is {rate!r}; take 0.15")
        if not isinstance(mean_length, int | float) or isinstance(mean_length, bool) or mean_length < 1:
            raise UsageError(f"task.mean_length must be a number of at least 1, but is {mean_length!r}; take 3")
        self.rate, self.mean_length = rate, mean_length
        self.sentinels = whole_number("sentinels", sentinels, 1)
        whole_number("block", block, 2)
        for length in (block, *evaluation_lengths("eval_lengths", eval_lengths, block, 2)):
            if (spans := self.gaps(length)[1]) > self.sentinels:
                raise UsageError(
                    f"task.sentinels must be at least {spans}, as many as {length} tokens have spans at "
                    f"task.rate={rate} and task.mean_length={mean_length}, but is {sentinels}; take more"
                )
        super().__init__(
            source=source, tokeniser=tokeniser, split=split, block=block, eval_lengths=eval_lengths,
            batch_size=batch_size, special=(PAD, END, *map(sentinel, range(self.sentinels))),
        )  # fmt: skip
        self.start_token, self.end_token = self.tokeniser.ids[PAD], self.tokeniser.ids[END]
        self._first_sentinel = self.tokeniser.ids[sentinel(0)]
        self.train_length = sum(self.gaps(self.block)) + 1
        shapes = [(length, *self.gaps(length)) for length in self.lengths_by_set.values()]
        self.max_length = max(max(length - missing, missing) + spans + 1 for length, missing, spans in shapes)

    @property
    def interface(self) -> Interface:
        return Interface(self.vocab_size, source=True)

    def needs(self, length: int) -> int:
        return length

    def gaps(self, length: int) -> tuple[int, int]:
        """How many tokens of `length` are missing, and in how many spans."""
        missing = min(max(round(self.rate * length), 1), length - 1)
        return missing, min(max(round(missing / self.mean_length), 1), length - missing)

    def train_batch(self, seed: int, step: int) -> Batch:
        generator = stream("train", int(seed), int(step))
        return self._batch("train", self.draw_places(generator, self.block), self.block, generator)

    def evaluation(self, split: Literal["val", "test"]) -> list[EvaluationSet]:
        if len(self.ids[split]) == 0:
            return []
        lengths = self.lengths_by_set
        return [
            EvaluationSet(name, len(batches), partial(self._evaluation_batch, split, name, batches, lengths[name]))
            for name, batches in self.blocks(split, lengths, ahead=0).items()
        ]

    def _evaluation_batch(self, split: Split, name: str, places: Sequence[Tensor], length: int, index: int) -> Batch:
        return self._batch(split, places[index], length, stream("spans", split, name, index))

    def _batch(self, split: Split, places: Tensor, length: int, generator: torch.Generator) -> Batch:
        ids = self.windows(split, places, length)
        missing, spans = self.gaps(length)
        runs = [parts(total, spans, len(ids), generator) for total in (length - missing, missing)]
        # Runs and spans take turns, a run first: ends [B,2k].
        ends = torch.stack(runs, dim=2).flatten(1).cumsum(1)
        turn = torch.searchsorted(ends, torch.arange(length).expand(len(ids), -1).contiguous(), right=True)
        gone, number = turn % 2 == 1, turn // 2
        mark = number + self._first_sentinel
        before = gone.cumsum(1) - gone.long()
        # In the source a sentinel stands where its span was; in the answer, where the run before its span was.
        source = self._written(length - missing + spans, torch.arange(length) - before + number, gone, mark, ids)
        answer = self._written(missing + spans, before + number + gone, ~gone, mark, ids)
        inputs = pad(answer[:, :-1], (1, 0), value=self.start_token)
        return Batch(inputs=inputs, targets=answer, source=Places(inputs=source))

    def _written(self, length: int, at: Tensor, marked: Tensor, mark: Tensor, ids: Tensor) -> Tensor:
        """Each token, or its mark where it is `marked`, written to its place `at`; <eos> behind: [B, length + 1]."""
        empty = torch.full((len(ids), length + 1), self.end_token)
        return empty.scatter(1, at, torch.where(marked, mark, ids))

    def metrics(self, answer: str = MAIN) -> MetricCollection:
        return sequence_metrics(_METRICS)

    def fingerprint(self) -> str:
        """SHA-256 of the corpus and of a first batch: a change of what is missing shows although no setting changed."""
        batch = self.train_batch(0, 0)
        assert batch.source is not None, "there is always a source"
        drawn = b"".join(part.numpy().tobytes() for part in (batch.source.inputs, batch.targets))
        return hashlib.sha256(f"{type(self).__name__} {super().fingerprint()}".encode() + drawn).hexdigest()


def sentinel(number: int) -> str:
    """How the sentinel of the span with this number is written."""
    return f"<extra_id_{number}>"


def parts(total: int, count: int, rows: int, generator: torch.Generator) -> Tensor:
    """`total` as a sum of `count` numbers above 0, each way equally often: [rows, count]."""
    cuts = torch.rand(rows, total - 1, generator=generator).argsort(1)[:, : count - 1].sort(1).values + 1
    edges = pad(pad(cuts, (1, 0), value=0), (0, 1), value=total)
    return edges.diff(dim=1)
