"""Losses that counting n-grams achieves on a text: the least that a model of it must beat."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from swapformer.task.base import IGNORE, Batch
from swapformer.task.text_task import Ids, TextTask

Floats = NDArray[np.float64]

_AT_ONCE = 1 << 22
"""Tokens that are counted at a time."""


class NgramCounts:
    """Counts of tokens and of pairs of neighbours in the training text of a task.

    `unigram` [V]: p(w) = (c(w) + 1) / (N + V). A neighbour's distribution is interpolated with it as by Witten and Bell
    (1991): p(w | v) = (c(v, w) + T(v) · p(w)) / (c(v) + T(v)), T(v) being how many different tokens follow v.
    """

    def __init__(self, task: TextTask) -> None:
        self.size = task.vocab_size
        self.special = task.corpus.learned.special
        counts = np.zeros(self.size, dtype=np.int64)
        keys, numbers = np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
        for ids in _parts(task):
            counts += np.bincount(ids[:-1], minlength=self.size)
            found, times = np.unique(ids[:-1] * self.size + ids[1:], return_counts=True)
            keys, order = np.unique(np.concatenate([keys, found]), return_inverse=True)
            numbers = np.bincount(order, weights=np.concatenate([numbers, times])).astype(np.int64)
        counts[int(task.ids["train"][-1])] += 1
        self.unigram: Floats = (counts + 1) / (counts.sum() + self.size)
        self._before, self._after, self._times = keys // self.size, keys % self.size, numbers
        followers = np.bincount(self._before, minlength=self.size)
        total = np.bincount(self._before, weights=numbers, minlength=self.size) + followers
        self._total: Floats = np.maximum(total, 1)
        self._unseen: Floats = np.where(total > 0, followers / self._total, 1.0)
        """The weight of the unigram distribution behind each token."""

    @cached_property
    def _by_follower(self) -> NDArray[np.int64]:
        return np.argsort(self._after, kind="stable")

    def following(self, before: int) -> Floats:
        """p(w | before) for every w [V]."""
        first, last = np.searchsorted(self._before, [before, before + 1])
        found = self._unseen[before] * self.unigram
        found[self._after[first:last]] += self._times[first:last] / self._total[before]
        return found

    def leading_to(self, after: int) -> Floats:
        """p(after | w) for every w [V]."""
        first, last = np.searchsorted(self._after, [after, after + 1], sorter=self._by_follower)
        pairs = self._by_follower[first:last]
        found = self._unseen * self.unigram[after]
        found[self._before[pairs]] += self._times[pairs] / self._total[self._before[pairs]]
        return found


class NgramBaselines:
    """Answers from counts, shaped as a model's: log p up to a constant, 0 where nothing is asked [B,T,V].

    `unigram`: the same for every position. `bigram`: after the token before. `both`, where later tokens are seen too:
    p(w | before) · p(after | w). A neighbour that is hidden or special tells nothing.
    """

    def __init__(self, task: TextTask) -> None:
        self.task, self._counts = task, NgramCounts(task)
        self.kinds = ("unigram", "bigram") if task.predicts_next else ("unigram", "bigram", "both")
        self._rows: dict[tuple[str, int], Tensor] = {}

    def answer(self, kind: str, batch: Batch) -> Tensor:
        """What a baseline answers to a batch."""
        size = self._counts.size
        found = torch.zeros(*batch.targets.shape, size)
        everywhere = self._row("unigram", 0)
        for row, position in (batch.targets != IGNORE).nonzero().tolist():
            ids = batch.inputs[row]
            before = int(ids[position]) if self.task.predicts_next else int(ids[position - 1]) if position else 0
            after = int(ids[position + 1]) if position + 1 < len(ids) else 0
            known = kind != "unigram" and before >= self._counts.special
            found[row, position] = self._row("following", before) if known else everywhere
            if kind == "both" and after >= self._counts.special:
                found[row, position] += self._row("leading_to", after)
        return found

    def _row(self, what: Literal["unigram", "following", "leading_to"], token: int) -> Tensor:
        if (what, token) not in self._rows:
            chances = self._counts.unigram if what == "unigram" else getattr(self._counts, what)(token)
            self._rows[what, token] = torch.from_numpy(np.log(chances)).float()
        return self._rows[what, token]


def measure(task: TextTask, split: Literal["val", "test"], batches: int) -> Mapping[str, Mapping[str, float]]:
    """The task's own metrics of each baseline, over at most `batches` batches of the evaluation set like training."""
    answers = NgramBaselines(task)
    metrics = {kind: task.metrics() for kind in answers.kinds}
    evaluation = task.evaluation(split)[0]
    for index in range(batches if evaluation.batches is None else min(batches, evaluation.batches)):
        batch = evaluation.batch(index)
        for kind, collection in metrics.items():
            collection.update(answers.answer(kind, batch), batch.targets)
    return {kind: {name: float(value) for name, value in one.compute().items()} for kind, one in metrics.items()}


def _parts(task: TextTask) -> Iterator[Ids]:
    """The training text in parts that overlap by a token."""
    ids = task.ids["train"]
    for start in range(0, len(ids) - 1, _AT_ONCE):
        yield ids[start : start + _AT_ONCE + 1].astype(np.int64)
        task.corpus.release()
