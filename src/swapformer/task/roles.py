"""Telling what each token of Python source is."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Literal

import numpy as np
import torch
from torch import Tensor
from torchmetrics import MetricCollection

from swapformer.interface import MAIN, Interface, Readout
from swapformer.random import stream
from swapformer.task.annotated import Arrays, annotations_of
from swapformer.task.base import IGNORE, Batch, EvaluationSet, Split, presence
from swapformer.task.class_metrics import DIRECTIONS, class_metrics
from swapformer.task.code import ROLES, Parsed, roles
from swapformer.task.division import shares
from swapformer.task.source import Source
from swapformer.task.text_task import TextTask
from swapformer.task.tokeniser import Tokeniser
from swapformer.task.tokeniser.base import Written

_NONE = 255


class Roles(TextTask):
    """The role of each token of Python source: keyword, operator, string …, and of a name whether it is called,
    defined, imported, a parameter, an attribute … (swapformer.task.code.ROLES).

    `source` holds Python files. Python's tokens are not the tokeniser's: the answer is asked for where a token of
    Python begins, at the tokeniser's token that holds its first character (where several begin in one, for the first of
    them), and nowhere else. A batch is `batch_size` blocks of `block` tokens at random places of the training text;
    evaluation cuts a split into blocks as Text does. `segments`: as in Masked.
    UsageError: a file that is no Python source, with its line.
    """

    directions = DIRECTIONS
    predicts_next = False
    classes = ROLES

    def __init__(
        self,
        *,
        source: Source,
        tokeniser: Tokeniser,
        split: Sequence[float] = (0.9, 0.05, 0.05),
        block: int = 64,
        eval_lengths: Sequence[int | str] = (),
        batch_size: int = 16,
        segments: bool = False,
    ) -> None:
        self.segments = 2 if presence("segments", segments) else 0
        self.tags = ("segment",) if self.segments else ()
        super().__init__(
            source=source, tokeniser=tokeniser, split=split, block=block, eval_lengths=eval_lengths,
            batch_size=batch_size,
        )  # fmt: skip
        self.said = annotations_of(source, self.tokeniser, self.corpus, shares(split), {"role": np.uint8}, roles_of)

    @property
    def interface(self) -> Interface:
        return Interface(
            self.vocab_size, segments=self.segments, readouts={MAIN: Readout(len(ROLES), "classes", "place")}
        )

    def needs(self, length: int) -> int:
        return length

    def train_batch(self, seed: int, step: int) -> Batch:
        places = self.draw_places(stream("train", int(seed), int(step)), self.block)
        return self._batch("train", places, self.block)

    def evaluation(self, split: Literal["val", "test"]) -> list[EvaluationSet]:
        if len(self.ids[split]) == 0:
            return []
        lengths = self.lengths_by_set
        return [
            EvaluationSet(name, len(batches), partial(self._evaluation_batch, split, batches, lengths[name]))
            for name, batches in self.blocks(split, lengths, ahead=0).items()
        ]

    def _evaluation_batch(self, split: Split, places: Sequence[Tensor], length: int, index: int) -> Batch:
        return self._batch(split, places[index], length)

    def _batch(self, split: Split, places: Tensor, length: int) -> Batch:
        labels = self.said.take(split, "role", places, length)
        return Batch(
            inputs=self.windows(split, places, length),
            targets=labels.masked_fill(labels == _NONE, IGNORE),
            tags={name: torch.zeros_like(labels) for name in self.tags},
        )

    def fingerprint(self) -> str:
        """SHA-256 of the corpus and of the roles of its tokens."""
        return self.said.fingerprint

    def metrics(self, answer: str = MAIN) -> MetricCollection:
        return class_metrics(len(ROLES))


def roles_of(parsed: Parsed, written: Written) -> Arrays:
    """The number of the role at each token of a file; _NONE where no token of Python begins."""
    number = {name: index for index, name in enumerate(ROLES)}
    spans = roles(parsed)
    found = np.full(len(written.ids), _NONE, dtype=np.uint8)
    begins = np.array([span.start for span in spans], dtype=np.int64)
    # Backwards, so that the first of several in one token stays.
    places = np.searchsorted(written.ends, begins, side="right")
    for place, span in zip(places[::-1], spans[::-1], strict=True):
        if place < len(found) and written.starts[place] <= span.start:
            found[place] = number[span.label]
    return {"role": found}
