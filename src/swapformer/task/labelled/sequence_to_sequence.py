"""One text from another."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torchmetrics import MetricCollection

from swapformer.interface import MAIN, Interface
from swapformer.task.base import IGNORE, Batch, Places
from swapformer.task.labelled.base import Labelled, Rows, one_column
from swapformer.task.labelled.examples import Columns
from swapformer.task.metrics import directions_of, sequence_metrics
from swapformer.task.settings import whole_number
from swapformer.task.source import Source
from swapformer.task.tokeniser import END, PAD, Tokeniser

_METRICS = ("loss", "loss_se", "perplexity", "accuracy", "accuracy_se", "exact_match", "exact_match_se")


class SequenceToSequence(Labelled):
    """Read a text, write the one in the column `target`, token by token, each right one being read next.

    The source is the text and <eos>, at most `block` places; the answer begins after [PAD], as T5's does (Raffel et al.
    2020, arXiv:1910.10683), and ends with <eos>, in `answer` places. What is longer is cut: a cut source keeps its
    beginning and its <eos>, a cut answer its beginning alone.
    UsageError: no such column, a target that is no text, an empty split.
    """

    directions = directions_of(_METRICS)
    predicts_next = True

    def __init__(
        self,
        *,
        source: Source,
        tokeniser: Tokeniser,
        target: str = "target",
        split: Sequence[float] = (0.8, 0.1, 0.1),
        block: int = 64,
        answer: int = 32,
        batch_size: int = 16,
    ) -> None:
        self.block = whole_number("block", block, 2)
        self.answer = self.train_length = self.longest_trained = whole_number("answer", answer, 2)
        self.max_length = max(self.block, self.answer)
        super().__init__(
            source=source, tokeniser=tokeniser, split=split, columns=Columns((one_column("target", target),)),
            special=(PAD, END), batch_size=batch_size,
        )  # fmt: skip

    @property
    def interface(self) -> Interface:
        return Interface(self.vocab_size, source=True)

    def places(self, rows: Rows) -> Places:
        """The source of the examples with these numbers [B]: [B,block]."""
        every, none = np.arange(len(rows)), np.zeros(len(rows), dtype=np.int64)
        source = self.filler(len(rows), self.block)
        read = np.minimum(self.lengths(rows, 0), self.block - 1)
        self.put(source, rows, 0, none, read)
        source[every, read] = self.id_of(END)
        padding = np.arange(self.block) > read[:, None]
        return Places(inputs=torch.from_numpy(source), padding=torch.from_numpy(padding))

    def batch(self, rows: Rows) -> Batch:
        every, one = np.arange(len(rows)), np.ones(len(rows), dtype=np.int64)
        # One place more than is kept: of an answer that is cut, the end lies there.
        written = np.minimum(self.lengths(rows, 1), self.answer)
        whole = self.filler(len(rows), self.answer + 2)
        self.put(whole, rows, 1, one, written)
        whole[every, written + 1] = self.id_of(END)
        padding = np.arange(self.answer) > written[:, None]
        read = np.where(padding, self.id_of(PAD), whole[:, : self.answer])
        return Batch(
            inputs=torch.from_numpy(read),
            targets=torch.from_numpy(np.where(padding, IGNORE, whole[:, 1 : self.answer + 1])),
            padding=torch.from_numpy(padding),
            source=self.places(rows),
        )

    def metrics(self, answer: str = MAIN) -> MetricCollection:
        return sequence_metrics(_METRICS)
