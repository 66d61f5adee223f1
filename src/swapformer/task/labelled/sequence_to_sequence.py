"""Sequence to sequence: write one text after reading another."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from swapformer.interface import Interface
from swapformer.ranges import Several
from swapformer.task.base import IGNORE, MEASURED, Batch, Sequences
from swapformer.task.labelled.base import LabelledTask, Rows
from swapformer.task.labelled.examples import Columns
from swapformer.task.measures import directions_of
from swapformer.task.settings import column_name
from swapformer.task.tokeniser import END, PAD


class SequenceToSequence(LabelledTask):
    """Read a text, then write the one in the column `target`, token by token.

    The source is the text and <eos>, at most `block` tokens; the answer begins after [PAD], as T5's does (Raffel et al.
    2020, arXiv:1910.10683), and ends with <eos>, in `answer` tokens. What is longer is cut: a cut source keeps its
    beginning and its <eos>, a cut answer its beginning alone.
    UsageError: no such column, a target that is no text, an empty split.
    """

    directions = directions_of(MEASURED)
    predicts_next = True

    special_tokens = (PAD, END)

    def __init__(self, *, target: str = "target", block: Several = 64, answer: Several = 32, **settings: Any) -> None:
        self.columns = Columns((column_name("target", target),))
        self.block = block
        self.answer = self.train_length = self.longest_trained = answer
        self.max_length = max(self.block, self.answer)
        super().__init__(**settings)

    @property
    def interface(self) -> Interface:
        return Interface(self.vocab_size, source=True)

    def read(self, rows: Rows) -> Sequences:
        """The source of the examples with these numbers [B]: [B,block]."""
        every, none = np.arange(len(rows)), np.zeros(len(rows), dtype=np.int64)
        source = self.filler(len(rows), self.block)
        read = np.minimum(self.lengths(rows, 0), self.block - 1)
        self.put(source, rows, 0, none, read)
        source[every, read] = self.id_of(END)
        padding = np.arange(self.block) > read[:, None]
        return Sequences(inputs=torch.from_numpy(source), padding=torch.from_numpy(padding))

    def batch(self, rows: Rows) -> Batch:
        every, one = np.arange(len(rows)), np.ones(len(rows), dtype=np.int64)
        # One token more than is kept: of an answer that is cut, the end lies there.
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
            source=self.read(rows),
        )
