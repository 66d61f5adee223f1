"""Causal language modelling on real text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor

from swapformer.errors import UsageError
from swapformer.interface import MAIN
from swapformer.ranges import Count
from swapformer.task.base import IGNORE, Batch, EvaluationSet, Pieces, Split
from swapformer.task.measures import directions_of
from swapformer.task.text_task import PackedTask

if TYPE_CHECKING:
    from torchmetrics import MetricCollection


class NextToken(PackedTask):
    """Predict each next token of a text.

    With `packing` documents the first token of a document is no target.
    A set "@L" has batches of eval_batch_size · block / L blocks. Where each length divides the longest and the longest
    divides eval_batch_size · block, the n-th batches of all sets score the very same tokens, with different amounts of
    context.
    """

    lookahead = 1
    independent = True

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        measured = ["loss", "loss_se", "perplexity", "bits_per_byte", "accuracy", "accuracy_se"]
        self.measured = [name for name in measured if self.tokeniser.lossless or name != "bits_per_byte"]
        self.directions = directions_of(self.measured)

    def batch(self, split: Split, starts: Tensor, length: int, generator: torch.Generator | None = None) -> Batch:
        """The blocks of `length` tokens that begin at `starts` [B], with the token after each as target."""
        window = self.windows(split, starts, length + 1)
        inputs, targets = window[:, :-1].contiguous(), window[:, 1:].contiguous()
        if self.packing == "blocks":
            return Batch(inputs=inputs, targets=targets)
        document = self.documents(split, starts, length + 1)
        here = document[:, :-1].contiguous()
        targets = targets.masked_fill(document[:, 1:] != here, IGNORE)
        return Batch(inputs=inputs, targets=targets, document=here, position=self.positions(here))

    def metrics(self, answer: str = MAIN) -> MetricCollection:
        from swapformer.task.metrics import sequence_metrics  # late: torchmetrics takes seconds

        return sequence_metrics(self.measured, token_bytes=torch.tensor(self.corpus.learned.sizes))


class Text(NextToken):
    """Predict each next token of a text.

    `stride`: evaluation slides: every window scores only its last `stride` tokens, so that each is predicted from at
    least L − stride tokens before it (fewer where the text begins), at L / stride times the work; null: blocks do not
    overlap. The tokens that are scored are the same.
    """

    def __init__(self, *, stride: Count | None = None, **settings: Any) -> None:
        super().__init__(**settings)
        self.stride = stride
        shortest = min(self.lengths_by_set.values())
        if self.stride is not None and self.stride > shortest:
            raise UsageError(
                f"task.stride must be at most the shortest block, {shortest}, or tokens would be left out, but is "
                f"{stride}; lower it, or take null for blocks that do not overlap"
            )
        if self.stride is not None and self.max_length % self.stride:
            fits = max(number for number in range(1, shortest + 1) if self.max_length % number == 0)
            raise UsageError(
                f"task.stride must divide the longest block, {self.max_length}, or tokens would be left out, but is "
                f"{stride}; take {fits} or another divisor"
            )

    def evaluation(self, split: Literal["val", "test"]) -> list[EvaluationSet]:
        if self.stride is None or len(self.ids[split]) == 0:
            return super().evaluation(split)
        within = torch.arange(self.max_length // self.stride) * self.stride
        starts = (self.region_starts(split, self.max_length).unsqueeze(1) + within).flatten()
        segments = Pieces(starts, self.eval_batch_size * self.block // self.stride)
        return [
            EvaluationSet(name, len(segments), partial(self._sliding_batch, split, segments, length, self.stride))
            for name, length in self.lengths_by_set.items()
        ]

    def _sliding_batch(self, split: Split, segments: Sequence[Tensor], length: int, stride: int, index: int) -> Batch:
        """Windows that end with the segment of `stride` tokens that they score, or begin with the text."""
        begins = (segments[index] + stride - length).clamp(min=0)
        batch = self.batch(split, begins, length)
        offset = (segments[index] - begins).unsqueeze(1)
        position = torch.arange(length)
        scored = (position >= offset) & (position < offset + stride)
        return replace(batch, targets=batch.targets.masked_fill(~scored, IGNORE))
