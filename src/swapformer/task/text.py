"""Causal language modelling on real text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Literal

import torch
from torch import Tensor
from torchmetrics import MetricCollection

from swapformer.errors import UsageError
from swapformer.interface import MAIN
from swapformer.random import stream
from swapformer.task.base import IGNORE, Batch, EvaluationSet, Split
from swapformer.task.metrics import directions_of, sequence_metrics
from swapformer.task.settings import whole_number
from swapformer.task.source import Source
from swapformer.task.text_task import Packing, TextTask
from swapformer.task.tokeniser import Tokeniser


class Text(TextTask):
    """Predict each next token of a text.

    A batch is `batch_size` blocks of `block` tokens at random places of the training text. `packing`: what a place of a
    block sees: all of it before (blocks), or only what is of its own document, whose first token then is no target
    (documents). `reset_positions`: positions begin at 0 in every document of a block.

    Evaluation cuts a split into blocks that do not overlap and goes through them once, in a fixed shuffled order. A
    set "@L" has batches of batch_size · block / L blocks. Where each length divides the longest and the longest divides
    batch_size · block, the n-th batches of all sets score the very same tokens, with different amounts of context.
    `stride`: evaluation slides instead: every window scores its last `stride` tokens alone, so that each is predicted
    from at least L − stride tokens before it (fewer where the text begins), at L / stride times the work; null: it does
    not. The tokens that are scored are the same.
    """

    def __init__(
        self,
        *,
        source: Source,
        tokeniser: Tokeniser,
        split: Sequence[float] = (0.9, 0.05, 0.05),
        block: int = 64,
        eval_lengths: Sequence[int | str] = (),
        batch_size: int = 16,
        packing: Packing = "blocks",
        reset_positions: bool = False,
        stride: int | None = None,
    ) -> None:
        super().__init__(
            source=source, tokeniser=tokeniser, split=split, block=block, eval_lengths=eval_lengths,
            batch_size=batch_size, packing=packing, reset_positions=reset_positions,
        )  # fmt: skip
        self.stride = None if stride is None else whole_number("stride", stride, 1)
        shortest = min(self.lengths_by_set.values())
        if self.stride is not None and self.stride > shortest:
            raise UsageError(
                f"task.stride must be at most the shortest block, {shortest}, or tokens would be left out, but is "
                f"{stride}; lower it, or take null for blocks that do not overlap"
            )
        measured = ["loss", "loss_se", "perplexity", "bits_per_byte", "accuracy", "accuracy_se"]
        self._measured = [name for name in measured if self.tokeniser.lossless or name != "bits_per_byte"]
        self.directions = directions_of(self._measured)

    def train_batch(self, seed: int, step: int) -> Batch:
        places = self.draw_places(stream("train", int(seed), int(step)), self.block + 1)
        return self._batch("train", places, self.block)

    def evaluation(self, split: Literal["val", "test"]) -> list[EvaluationSet]:
        if len(self.ids[split]) == 0:
            return []
        lengths = self.lengths_by_set
        if self.stride is not None:
            segments = self._segments(split, self.stride)
            return [
                EvaluationSet(name, len(segments), partial(self._sliding_batch, split, segments, length))
                for name, length in lengths.items()
            ]
        return [
            EvaluationSet(name, len(batches), partial(self._evaluation_batch, split, batches, lengths[name]))
            for name, batches in self.blocks(split, lengths, ahead=1).items()
        ]

    def _segments(self, split: Split, stride: int) -> Sequence[Tensor]:
        """Where the segments begin that windows score, batch by batch: as many tokens as of blocks."""
        within = torch.arange(self.max_length // stride) * stride
        places = (self.regions(split, self.max_length, ahead=1).unsqueeze(1) + within).flatten()
        return torch.split(places, max(1, self.batch_size * self.block // stride))

    def _evaluation_batch(self, split: Split, places: Sequence[Tensor], length: int, index: int) -> Batch:
        return self._batch(split, places[index], length)

    def _sliding_batch(self, split: Split, segments: Sequence[Tensor], length: int, index: int) -> Batch:
        """Windows that end with their segment, or begin with the text."""
        assert self.stride is not None
        begins = (segments[index] + self.stride - length).clamp(min=0)
        batch = self._batch(split, begins, length)
        offset = (segments[index] - begins).unsqueeze(1)
        place = torch.arange(length)
        scored = (place >= offset) & (place < offset + self.stride)
        return replace(batch, targets=batch.targets.masked_fill(~scored, IGNORE))

    def _batch(self, split: Split, places: Tensor, length: int) -> Batch:
        """The blocks of `length` tokens that begin at `places` [B], with the token after each as target."""
        window = self.windows(split, places, length + 1)
        inputs, targets = window[:, :-1].contiguous(), window[:, 1:].contiguous()
        if self.packing == "blocks":
            return Batch(inputs=inputs, targets=targets)
        document = self.documents(split, places, length + 1)
        here = document[:, :-1].contiguous()
        targets = targets.masked_fill(document[:, 1:] != here, IGNORE)
        return Batch(inputs=inputs, targets=targets, document=here, position=self.positions(here))

    def metrics(self, answer: str = MAIN) -> MetricCollection:
        return sequence_metrics(self._measured, token_bytes=torch.tensor(self.corpus.learned.sizes))
