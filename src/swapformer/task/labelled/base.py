"""What tasks on labelled examples share: rows drawn for training, gone through for evaluation, texts put in places."""

from __future__ import annotations

import hashlib
import inspect
from abc import abstractmethod
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from swapformer.random import stream
from swapformer.task import cache
from swapformer.task.base import Batch, EvaluationSet, Places, Split, whole_number
from swapformer.task.division import shares
from swapformer.task.labelled.examples import Columns, examples_of
from swapformer.task.labelled.unseen import unseen
from swapformer.task.source import Source
from swapformer.task.tokeniser import PAD, Tokeniser
from swapformer.task.written import WrittenTask

Rows = NDArray[np.int64]


class Labelled(WrittenTask):
    """A task on the rows of `source`, written as `tokeniser` does.

    `split`: shares of training, validation and test; a row's split is decided by a hash of its text, or of the file
    that it is from. `columns`: what is asked of a row. `special`: the special tokens that the task needs. `block`, the
    places of a text, is set beforehand. `judged`: the examples that validation and test are judged on.
    Training draws rows at random, with replacement; evaluation goes once through those of its split, in a fixed
    shuffled order, and leaves out what is read in training too (`left_out` says how many).
    """

    predicts_next = False
    block: int

    def __init__(
        self,
        *,
        source: Source,
        tokeniser: Tokeniser,
        split: Sequence[float],
        columns: Columns,
        special: Sequence[str],
        batch_size: int,
    ) -> None:
        self.batch_size = whole_number("batch_size", batch_size, 1)
        self.examples = examples_of(source, tokeniser, special, shares(split), columns)
        self.know(tokeniser, self.examples.learned)
        self._fields = 1 + len(columns.texts)
        made_by = cache.code_of(str(Path(__file__).parent), inspect.getsourcefile(type(self)))
        facts = [made_by, type(self).__qualname__, self.block, self._fields]
        self.judged = unseen(self.examples, self.places, facts)

    @abstractmethod
    def batch(self, rows: Rows) -> Batch:
        """The batch of the examples with these numbers [B]."""

    @abstractmethod
    def places(self, rows: Rows) -> Places:
        """What is read of the examples with these numbers [B], without what is answered."""

    @property
    def left_out(self) -> dict[Split, int]:
        return {split: len(self.examples.rows(split)) - len(rows) for split, rows in self.judged.items()}

    def draw(self, generator: torch.Generator) -> Rows:
        """The examples of a training batch [batch_size]."""
        rows = self.examples.rows("train")
        drawn: Rows = torch.randint(rows.start, rows.stop, (self.batch_size,), generator=generator).numpy()
        return drawn

    def order(self, split: Split) -> Tensor:
        """The examples that a split is evaluated on, in the order in which they come."""
        rows = torch.from_numpy(self.judged[split])
        return rows[torch.randperm(len(rows), generator=stream("rows", split))]

    def train_batch(self, seed: int, step: int) -> Batch:
        return self.batch(self.draw(stream("train", int(seed), int(step))))

    def evaluation(self, split: Literal["val", "test"]) -> list[EvaluationSet]:
        batches = [part for part in torch.split(self.order(split), self.batch_size) if len(part)]
        return [EvaluationSet("", len(batches), partial(self._evaluation_batch, batches))] if batches else []

    def _evaluation_batch(self, batches: Sequence[Tensor], index: int) -> Batch:
        return self.batch(batches[index].numpy())

    def lengths(self, rows: Rows, field: int) -> Rows:
        """The tokens of a text of each example [B]."""
        at = rows * self._fields + field
        return np.asarray(self.examples.offsets[at + 1] - self.examples.offsets[at])

    def put(self, into: NDArray[np.int64], rows: Rows, field: int, first: Rows, counts: Rows) -> None:
        """Write the first `counts` [B] tokens of a text of each example to `into` [B,T] from place `first` [B] on."""
        at = np.arange(into.shape[1]) - first[:, None]
        here = (at >= 0) & (at < counts[:, None])
        starts = self.examples.offsets[rows * self._fields + field]
        into[here] = self.examples.ids[(starts[:, None] + at)[here]]

    def id_of(self, name: str) -> int:
        """The id of a special token."""
        return self.tokeniser.ids[name]

    def filler(self, *shape: int) -> NDArray[np.int64]:
        """Places that hold nothing yet."""
        return np.full(shape, self.id_of(PAD), dtype=np.int64)

    def fingerprint(self) -> str:
        """SHA-256 of the examples, their splits, the vocabulary and what is judged: of the data, wherever they lay."""
        digest = hashlib.sha256(self.examples.fingerprint.encode())
        for rows in self.judged.values():
            digest.update(len(rows).to_bytes(8) + rows.tobytes())
        return digest.hexdigest()
