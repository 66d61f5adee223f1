"""Causal language modelling on characters or bytes of real text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, Literal, SupportsIndex

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torchmetrics import MetricCollection

from swapformer.errors import UsageError
from swapformer.interface import MAIN
from swapformer.random import stream
from swapformer.task import cache
from swapformer.task.base import Batch, EvaluationSet, Task, whole_number
from swapformer.task.corpus import SPLITS, UNKNOWN, Corpus, Unit, build
from swapformer.task.lengths import evaluation_lengths
from swapformer.task.metrics import directions_of, sequence_metrics
from swapformer.task.sources import find, standard_library

_METRICS = ("loss", "loss_se", "perplexity", "bits_per_byte", "accuracy", "accuracy_se")
_RARE_IN_SOURCE = 100


class Text(Task):
    """Predict each next character or byte of a text.

    `path`: a file, a folder or a pattern; null is the Python standard library's source. `unit`: characters or bytes.
    `split`: shares of training, validation and test. Your files are joined in the order of their names and cut in
    three (training int(share · n) tokens, as nanoGPT does); the library's go to a split whole, by a hash of the name.
    `min_count`: characters that occur less often in the whole text become one <unk> (null: 1 for your files, 100 for
    the library, whose rare characters differ between versions). bits_per_byte counts an <unk> as one byte.
    `block`: T in training; a batch is `batch_size` blocks at random places. `eval_lengths`: each adds a set "@L";
    2x is twice `block`.

    Evaluation cuts a split into blocks that do not overlap and goes through them once, in a fixed shuffled order. A
    set "@L" has batches of batch_size · block / L blocks. Where each length divides the longest and the longest divides
    batch_size · block, the n-th batches of all sets score the very same tokens, with different amounts of context.
    UsageError: no such path, no text, not UTF-8, a split too short for a block, shares that are none.
    """

    directions = directions_of(_METRICS)

    def __init__(
        self,
        *,
        path: str | None = None,
        unit: Unit = "characters",
        split: Sequence[float] = (0.9, 0.05, 0.05),
        min_count: int | None = None,
        block: int = 64,
        eval_lengths: Sequence[int | str] = (),
        batch_size: int = 16,
    ) -> None:
        if unit not in ("characters", "bytes"):
            raise UsageError(f"task.unit must be characters or bytes, but is {unit!r}")
        self.path = path
        self.block = self.train_length = self.longest_trained = whole_number("block", block, 1)
        self.batch_size = whole_number("batch_size", batch_size, 1)
        self.eval_lengths = evaluation_lengths("eval_lengths", eval_lengths, self.block)
        self.max_length = max(self.block, *self.eval_lengths, 0)
        fractions = _fractions(split)
        if min_count is None:
            min_count = _RARE_IN_SOURCE if path is None else 1
        self._corpus = _load(path, unit, fractions, whole_number("min_count", min_count, 1))
        self._check_lengths(fractions)
        self._ids = {name: self._corpus.split(name) for name in SPLITS}
        if self._corpus.vocabulary is None:
            self.tokens = tuple(map(chr, range(256)))
        else:
            self.tokens = (*self._corpus.vocabulary, *([UNKNOWN] if self._corpus.unknown else []))
        self.vocab_size = len(self.tokens)

    def _check_lengths(self, fractions: Sequence[float]) -> None:
        for name, length, fraction in zip(SPLITS, self._corpus.lengths, fractions, strict=True):
            needed = (self.block if name == "train" else self.max_length) + 1
            if length < needed and fraction > 0:
                source = "the Python standard library" if self.path is None else repr(self.path)
                raise UsageError(
                    f"the {name} split of {source} must have at least {needed} tokens for task.block={self.block} and "
                    f"task.eval_lengths={list(self.eval_lengths)}, but has {length}; take a longer text, "
                    "shorter blocks, or another task.split"
                )

    def train_batch(self, seed: int, step: int) -> Batch:
        ids = self._ids["train"]
        generator = stream("train", int(seed), int(step))
        places = torch.randint(len(ids) - self.block, (self.batch_size,), generator=generator)
        return _blocks(ids, places, self.block)

    def evaluation(self, split: Literal["val", "test"]) -> list[EvaluationSet]:
        ids = self._ids[split]
        if len(ids) == 0:
            return []
        # All lengths share one order of regions as long as the longest, so that they score the same text.
        regions = torch.randperm((len(ids) - 1) // self.max_length, generator=stream("text", split)) * self.max_length
        sets = []
        for name, length in ({"": self.block} | {f"@{length}": length for length in self.eval_lengths}).items():
            within = torch.arange(self.max_length // length) * length
            places = (regions.unsqueeze(1) + within).flatten()
            batches = torch.split(places, max(1, self.batch_size * self.block // length))
            sets.append(EvaluationSet(name, len(batches), partial(_evaluation_batch, ids, batches, length)))
        return sets

    def metrics(self, answer: str = MAIN) -> MetricCollection:
        sizes = [
            1 if token == UNKNOWN or self._corpus.vocabulary is None else len(token.encode()) for token in self.tokens
        ]
        return sequence_metrics(_METRICS, token_bytes=torch.tensor(sizes))

    def fingerprint(self) -> str:
        """SHA-256 of the token ids, the splits and the vocabulary: of what is learned from, not of where it lay."""
        return self._corpus.fingerprint

    def encode(self, text: str) -> list[int]:
        """Token ids of a text; a character that has none is <unk>, or a UsageError where there is no <unk>."""
        if self._corpus.vocabulary is None:
            return list(text.encode())
        if self._corpus.unknown:
            ids = {token: index for index, token in enumerate(self.tokens)}
            return [ids.get(character, ids[UNKNOWN]) for character in text]
        return super().encode(text)

    def decode(self, ids: Iterable[SupportsIndex]) -> str:
        """The text that token ids stand for; bytes that are no UTF-8 show as U+FFFD."""
        if self._corpus.vocabulary is None:
            return bytes(ids).decode(errors="replace")
        return super().decode(ids)


def _load(path: str | None, unit: Unit, fractions: tuple[float, float, float], min_count: int) -> Corpus:
    source = standard_library() if path is None else find(path)
    signature, latest_change = cache.signature(source, [unit, fractions, min_count])
    corpus = cache.load(signature)
    if corpus is None:
        corpus = build(source, unit, fractions, min_count)
        cache.store(signature, latest_change, corpus)
    return corpus


def _fractions(split: Sequence[float]) -> tuple[float, float, float]:
    shares = list(split) if isinstance(split, Iterable) and not isinstance(split, str) else [split]
    numbers = [share for share in shares if isinstance(share, int | float) and not isinstance(share, bool)]
    if (
        len(numbers) != 3
        or len(shares) != 3
        or not (numbers[0] > 0 and numbers[1] > 0 and numbers[2] >= 0)
        or abs(sum(numbers) - 1) > 1e-6
    ):
        raise UsageError(
            f"task.split must be three shares that add up to 1, training and validation above 0, but is {split!r}; "
            "take [0.9,0.05,0.05], or [0.9,0.1,0.0] for no test"
        )
    return numbers[0], numbers[1], numbers[2]


def _blocks(ids: NDArray[np.unsignedinteger[Any]], places: Tensor, length: int) -> Batch:
    """The blocks of `length` tokens that begin at `places` [B], with the token after each as target."""
    window = torch.from_numpy(ids[places.numpy()[:, None] + np.arange(length + 1)].astype(np.int64))
    return Batch(inputs=window[:, :-1].contiguous(), targets=window[:, 1:].contiguous())


def _evaluation_batch(
    ids: NDArray[np.unsignedinteger[Any]], places: Sequence[Tensor], length: int, index: int
) -> Batch:
    return _blocks(ids, places[index], length)
