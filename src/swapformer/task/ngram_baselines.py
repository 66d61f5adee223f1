"""Losses that counting n-grams achieves on a text: the least that a model of it must beat."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
from itertools import takewhile
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from swapformer.task.base import IGNORE, Batch
from swapformer.task.text_task import TextTask

Floats = NDArray[np.float64]

_AT_ONCE = 1 << 22
"""Tokens that are counted at a time."""

_KEPT = 4096
"""Answers that are kept, those of the contexts seen last."""

NAMES = ("unigram", "bigram", "trigram", "4-gram", "5-gram")


class NgramCounts:
    """Counts of runs of up to five tokens in the training text of a task.

    `unigram` [V]: p(w) = (c(w) + 1) / (N + V). Each longer run is interpolated with the shorter one as by Witten and
    Bell (1991): p(w | h) = (c(h, w) + T(h) · p(w | h')) / (c(h) + T(h)), where T(h) is how many different tokens follow
    h, and h' is h without its first token. With `packing` documents no run holds tokens of two documents, and the first
    token of a document, which no model predicts from what precedes it, is not counted.

    Args:
        longest: the length of the longest run, from 2 to 5. Runs are as short as needed for V^n to fit in 63 bits.
        seen: the tokens of the training text that are counted, all of them where it is None; a run has no others, and
            the first token behind a gap is not predicted.
    """

    def __init__(self, task: TextTask, longest: int = 5, seen: NDArray[np.bool_] | None = None) -> None:
        self.size = task.vocab_size
        self.special = task.corpus.learned.special
        self.longest = max(2, min(longest, int(63 * math.log(2) / math.log(max(self.size, 2)))))
        counts = np.zeros(self.size, dtype=np.int64)
        self._runs = {length: _Runs(self.size) for length in range(2, self.longest + 1)}
        for ids, document, new in _parts(task, self.longest - 1, seen):
            asked = ids[-new:]
            if task.predicts_next:
                asked = asked[document[-new:] == np.concatenate([[0], document])[-new - 1 : -1]]
            else:
                asked = asked[document[-new:] >= 0]
            counts += np.bincount(asked, minlength=self.size)
            for length, runs in self._runs.items():
                runs.add(ids, document, length, new)
        self.unigram: Floats = (counts + 1) / (counts.sum() + self.size)

    def following(self, before: Sequence[int]) -> Floats:
        """p(w | before) for every w [V]; of `before`, the last `longest` - 1 tokens count."""
        found = self.unigram
        for length in range(2, min(len(before) + 1, self.longest) + 1):
            tokens, times = self._runs[length].after(before[-(length - 1) :])
            if len(tokens):
                kinds, total = len(tokens), times.sum()
                found = found * (kinds / (total + kinds))
                found[tokens] += times / (total + kinds)
        return found

    def leading_to(self, after: int) -> Floats:
        """p(after | w) for every w [V]."""
        found = self._before.unseen * self.unigram[after]
        tokens, shares = self._before.of(after)
        found[tokens] += shares
        return found

    @cached_property
    def _before(self) -> _Before:
        return _Before(self._runs[2])


class _Runs:
    """The count of each run of one length; a run is the number that its tokens write in base V."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.keys, self.times = np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)

    def add(self, ids: NDArray[np.int64], document: NDArray[np.int64], length: int, new: int) -> None:
        """Count the runs within one document that end in one of the last `new` tokens."""
        if len(ids) < length:
            return
        ends = range(max(length - 1, len(ids) - new), len(ids))
        keys = np.zeros(len(ends), dtype=np.int64)
        for back in range(length - 1, -1, -1):
            keys = keys * self.size + ids[ends.start - back : len(ids) - back]
        keys = keys[document[ends.start :] == document[ends.start - length + 1 : len(ids) - length + 1]]
        found, times = np.unique(keys, return_counts=True)
        self.keys, order = np.unique(np.concatenate([self.keys, found]), return_inverse=True)
        self.times = np.bincount(order, weights=np.concatenate([self.times, times])).astype(np.int64)

    def after(self, before: Sequence[int]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The tokens seen behind the run `before`, and how often each was."""
        first = 0
        for token in before:
            first = first * self.size + int(token)
        start, end = np.searchsorted(self.keys, [first * self.size, (first + 1) * self.size])
        return self.keys[start:end] % self.size, self.times[start:end]


class _Before:
    """Pairs of tokens, looked up by the second one."""

    def __init__(self, pairs: _Runs) -> None:
        before, after = pairs.keys // pairs.size, pairs.keys % pairs.size
        kinds = np.bincount(before, minlength=pairs.size)
        total = np.bincount(before, weights=pairs.times, minlength=pairs.size) + kinds
        self.unseen: Floats = np.where(total > 0, kinds / np.maximum(total, 1), 1.0)
        order = np.argsort(after, kind="stable")
        self._after, self._tokens = after[order], before[order]
        self._shares = pairs.times[order] / total[self._tokens]

    def of(self, after: int) -> tuple[NDArray[np.int64], Floats]:
        """The tokens seen before `after`, and c(w, after) / (c(w) + T(w)) of each."""
        start, end = np.searchsorted(self._after, [after, after + 1])
        return self._tokens[start:end], self._shares[start:end]


class NgramBaselines:
    """Answers from counts, shaped as a model's: log p up to a constant, 0 where nothing is asked [B,T,V].

    `unigram`: the same for every position. `bigram`, `trigram`, `4-gram`, `5-gram`: after the last one to four tokens
    of the same sequence, of the same document where models see no other. `both`, where later tokens are seen too:
    p(w | before) · p(after | w). A token that is hidden or special tells nothing, nor does what stands before it.
    """

    def __init__(self, task: TextTask, seen: NDArray[np.bool_] | None = None) -> None:
        self.task, self._counts = task, NgramCounts(task, len(NAMES) if task.predicts_next else 2, seen)
        self.kinds = NAMES[: self._counts.longest] if task.predicts_next else ("unigram", "bigram", "both")
        self._following = lru_cache(_KEPT)(lambda before: _logarithm(self._counts.following(before)))
        self._leading_to = lru_cache(_KEPT)(lambda after: _logarithm(self._counts.leading_to(after)))

    def answer(self, kind: str, batch: Batch) -> Tensor:
        """The answers of a baseline to a batch."""
        found = torch.zeros(*batch.targets.shape, self._counts.size)
        most = 1 if kind == "both" else NAMES.index(kind)
        for row, position in (batch.targets != IGNORE).nonzero().tolist():
            ids, end = batch.inputs[row], position + self.task.predicts_next
            first, last = (0, len(ids)) if batch.document is None else _around(batch.document[row], position)
            found[row, position] = self._following(self._known(ids[max(end - most, first) : end].tolist()))
            if kind == "both" and position + 1 < last and self._known([int(ids[position + 1])]):
                found[row, position] += self._leading_to(int(ids[position + 1]))
        return found

    def _known(self, before: Sequence[int]) -> tuple[int, ...]:
        """The tokens behind the last one that is special."""
        plain = takewhile(lambda token: token >= self._counts.special, reversed(before))
        return tuple(plain)[::-1]


def _around(document: Tensor, position: int) -> tuple[int, int]:
    """The places between which the document [T] of a position stands."""
    here = (document == document[position]).nonzero()
    return int(here[0]), int(here[-1]) + 1


def _logarithm(chances: Floats) -> Tensor:
    return torch.from_numpy(np.log(chances)).float()


def measure(
    task: TextTask, split: Literal["val", "test"], batches: int, seen: NDArray[np.bool_] | None = None
) -> Mapping[str, Mapping[str, float]]:
    """The task's own metrics of each baseline, over at most `batches` batches of the evaluation set like training.

    `seen`: the tokens of the training text that are counted; None for all.
    """
    answers = NgramBaselines(task, seen)
    metrics = {kind: task.metrics() for kind in answers.kinds}
    evaluation = task.evaluation(split)[0]
    for index in range(batches if evaluation.batches is None else min(batches, evaluation.batches)):
        batch = evaluation.batch(index)
        for kind, collection in metrics.items():
            collection.update(answers.answer(kind, batch), batch.targets)
    return {kind: {name: float(value) for name, value in one.compute().items()} for kind, one in metrics.items()}


def _parts(
    task: TextTask, overlap: int, seen: NDArray[np.bool_] | None
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64], int]]:
    """The training text in parts, each with the `overlap` tokens before it, their documents, and how many are new.

    Documents count from 1; all tokens are of document 0 where models see beyond theirs. Where not all are `seen`, each
    stretch of those that are is a document of its own, and every other token one below 0.
    """
    ids = task.ids["train"]
    begins = task.begins["train"] if getattr(task, "packing", "blocks") == "documents" else np.empty(0, dtype=np.int64)
    for start in range(0, len(ids), _AT_ONCE):
        first = max(start - overlap, 0)
        part = ids[first : start + _AT_ONCE].astype(np.int64)
        places = np.arange(first, first + len(part))
        document = np.searchsorted(begins, places, side="right")
        if seen is not None:
            own = seen[first : start + _AT_ONCE]
            document = np.where(own, document * len(ids) + np.cumsum(~own), -1 - places)
        yield part, document, len(part) - min(start, overlap)
        task.corpus.release()
