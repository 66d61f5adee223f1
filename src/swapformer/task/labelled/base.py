"""Bases of tasks on labelled examples: drawing and ordering rows, and reading a text or a pair of texts."""

from __future__ import annotations

import hashlib
import inspect
from abc import abstractmethod
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from swapformer.random import stream
from swapformer.ranges import Count, Share, Within
from swapformer.task import cache
from swapformer.task.base import Batch, EvaluationSet, Sequences, Split
from swapformer.task.labelled.answers import Kind
from swapformer.task.labelled.examples import Columns, examples_of, unseen_examples
from swapformer.task.settings import split_shares
from swapformer.task.source import Source
from swapformer.task.text_task import TokenisedTask
from swapformer.task.tokeniser import CLASSIFY, PAD, SEPARATE, Tokeniser

Rows = NDArray[np.int64]


class LabelledTask(TokenisedTask):
    """A task on the rows of `source`, written as `tokeniser` does.

    `split`: shares of training, validation and test; a row's split is decided by a hash of its text, or of the file
    that it is from. Set by a class before: `columns` is what it asks of a row, `block` the length of a text.
    `evaluated`: the examples of validation and test that are evaluated.
    Training draws rows at random, with replacement; evaluation goes once through those of its split, in a fixed
    shuffled order, and leaves out what is read in training too (`left_out` says how many).
    """

    predicts_next = False
    block: int
    columns: Columns

    def __init__(
        self,
        *,
        source: Source,
        tokeniser: Tokeniser,
        split: Sequence[Share] = (0.8, 0.1, 0.1),
        batch_size: Count = 16,
        eval_batch_size: Count | None = None,
    ) -> None:
        self.batch_size = batch_size
        self.eval_batch_size = eval_batch_size or batch_size
        shares = source.own_shares or split_shares(split)
        self.examples = examples_of(source, tokeniser, self.special_tokens, shares, self.columns)
        self.set_tokens(tokeniser, self.examples.learned)
        self._fields = 1 + len(self.columns.texts)
        code = cache.code_hash(str(Path(__file__).parent), inspect.getsourcefile(type(self)))
        facts = [code, type(self).__qualname__, self.block, self._fields]
        self.evaluated = unseen_examples(self.examples, self.read, facts)

    def crowded_batch(self) -> str | None:
        rows = len(self.examples.rows("train"))
        if self.batch_size <= rows:
            return None
        return (
            f"a batch must not be larger than the training data, but task.batch_size={self.batch_size} is more than "
            f"their {rows} rows; take task.batch_size={rows} or less, or more rows"
        )

    @abstractmethod
    def batch(self, rows: Rows) -> Batch:
        """The batch of the examples with these numbers [B]."""

    @abstractmethod
    def read(self, rows: Rows) -> Sequences:
        """The texts that are read of the examples with these numbers [B]."""

    @property
    def left_out(self) -> dict[Split, int]:
        return {split: len(self.examples.rows(split)) - len(rows) for split, rows in self.evaluated.items()}

    def draw(self, generator: torch.Generator) -> Rows:
        """The examples of a training batch [batch_size]."""
        rows = self.examples.rows("train")
        drawn: Rows = torch.randint(rows.start, rows.stop, (self.batch_size,), generator=generator).numpy()
        return drawn

    def order(self, split: Split) -> Tensor:
        """The examples that a split is evaluated on, in the order in which they come."""
        rows = torch.from_numpy(self.evaluated[split])
        return rows[torch.randperm(len(rows), generator=stream("rows", split))]

    def train_batch(self, seed: int, step: int) -> Batch:
        return self.batch(self.draw(stream("train", int(seed), int(step))))

    def evaluation(self, split: Literal["val", "test"]) -> list[EvaluationSet]:
        batches = [part for part in torch.split(self.order(split), self.eval_batch_size) if len(part)]
        return [EvaluationSet("", len(batches), partial(self._evaluation_batch, batches))] if batches else []

    def _evaluation_batch(self, batches: Sequence[Tensor], index: int) -> Batch:
        return self.batch(batches[index].numpy())

    def lengths(self, rows: Rows, field: int) -> Rows:
        """The tokens of a text of each example [B]."""
        at = rows * self._fields + field
        return np.asarray(self.examples.offsets[at + 1] - self.examples.offsets[at])

    def put(self, into: NDArray[np.int64], rows: Rows, field: int, first: Rows, counts: Rows) -> None:
        """Write the first `counts` [B] tokens of a text of each example to `into` [B,T] at positions `first` [B] …"""
        at = np.arange(into.shape[1]) - first[:, None]
        here = (at >= 0) & (at < counts[:, None])
        starts = self.examples.offsets[rows * self._fields + field]
        into[here] = self.examples.ids[(starts[:, None] + at)[here]]

    def id_of(self, name: str) -> int:
        """The id of a special token."""
        return self.tokeniser.ids[name]

    def filler(self, *shape: int) -> NDArray[np.int64]:
        """An array of padding."""
        return np.full(shape, self.id_of(PAD), dtype=np.int64)

    def fingerprint(self) -> str:
        """SHA-256 of the examples, their splits, the vocabulary and what is evaluated: of data, not of their path."""
        digest = hashlib.sha256(self.examples.fingerprint.encode())
        for rows in self.evaluated.values():
            digest.update(len(rows).to_bytes(8) + rows.tobytes())
        return digest.hexdigest()


class ReadingTask(LabelledTask):
    """Base of tasks that read one or two texts and answer once.

    A sequence is [CLS] text [SEP], or [CLS] text [SEP] second [SEP], filled up to `block` tokens (Devlin et al. 2018).

    `second`: the column of a second text (null: none). What is longer than `block` is cut at its end: of two texts, the
    longer one until both are equally long. `segments`: whether the second text with its [SEP] is another segment, which
    an encoder embeds; a task with one text then has one of two segments, as models have that were trained on pairs.
    """

    special_tokens = (PAD, CLASSIFY, SEPARATE)
    kind: Kind
    answers: tuple[str, ...]
    """The columns of the answers, set by a class before."""

    def __init__(
        self,
        *,
        second: str | None = None,
        block: Annotated[int, Within("[4, inf)")] = 64,
        segments: bool = False,
        **settings: Any,
    ) -> None:
        self.columns = Columns(() if second is None else (second,), self.answers, self.kind)
        self.block = self.train_length = self.longest_trained = self.max_length = block
        self.segments = 2 if segments else 0
        self.tags = ("segment",) if self.segments else ()
        super().__init__(**settings)

    def read(self, rows: Rows) -> Sequences:
        """The texts of the examples with these numbers [B]: [B,block]."""
        inputs = self.filler(len(rows), self.block)
        inputs[:, 0] = self.id_of(CLASSIFY)
        every, counts = np.arange(len(rows)), self._fit(rows)
        first = np.ones(len(rows), dtype=np.int64)
        ends = []
        for field, count in enumerate(counts):
            self.put(inputs, rows, field, first, count)
            inputs[every, first + count] = self.id_of(SEPARATE)
            first = first + count + 1
            ends.append(first)
        position = np.arange(self.block)
        segment = (position >= ends[0][:, None]) & (position < first[:, None])
        return Sequences(
            inputs=torch.from_numpy(inputs),
            padding=torch.from_numpy(position >= first[:, None]),
            tags={"segment": torch.from_numpy(segment.astype(np.int64))} if self.segments else {},
        )

    def _fit(self, rows: Rows) -> list[Rows]:
        """The number of tokens of each text that are read: [B] for each."""
        room = self.block - 1 - self._fields
        lengths = [self.lengths(rows, field) for field in range(self._fields)]
        if len(lengths) == 1:
            return [np.minimum(lengths[0], room)]
        first, second = lengths
        half = room // 2
        return [
            np.minimum(first, np.maximum(room - half, room - second)),
            np.minimum(second, np.maximum(half, room - first)),
        ]
