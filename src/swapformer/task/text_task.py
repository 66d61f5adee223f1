"""What tasks on a text share: its corpus, its tokens, and the blocks that it is cut into."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, SupportsIndex

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from swapformer.errors import UsageError
from swapformer.random import stream
from swapformer.task.base import Split, Task, whole_number
from swapformer.task.build import corpus_of
from swapformer.task.division import SPLITS, shares
from swapformer.task.lengths import evaluation_lengths
from swapformer.task.source import Source
from swapformer.task.tokeniser import Tokeniser

Ids = NDArray[Any]


class TextTask(Task):
    """A task on the documents of `source`, written as `tokeniser` does.

    `split`: shares of training, validation and test; see Division for what goes where. `block`: the length of a
    training sequence; a batch has `batch_size`. `eval_lengths`: each adds an evaluation set "@L"; 2x is
    twice `block`. `special`: the special tokens that the task needs.
    UsageError: a split shorter than a sequence, shares that are none, and what source and tokeniser say.
    """

    def __init__(
        self,
        *,
        source: Source,
        tokeniser: Tokeniser,
        split: Sequence[float],
        block: int,
        eval_lengths: Sequence[int | str],
        batch_size: int,
        special: Sequence[str] = (),
    ) -> None:
        self.block = self.train_length = self.longest_trained = whole_number("block", block, 1)
        self.batch_size = whole_number("batch_size", batch_size, 1)
        self.eval_lengths = evaluation_lengths("eval_lengths", eval_lengths, self.block)
        self.max_length = max(self.block, *self.eval_lengths, 0)
        fractions = shares(split)
        self.corpus = corpus_of(source, tokeniser, special, fractions)
        self.tokeniser = tokeniser.with_learned(self.corpus.learned)
        self.tokens = self.corpus.learned.tokens
        self.vocab_size = len(self.tokens)
        self._check_lengths(source, fractions)

    def needs(self, length: int) -> int:
        """The tokens of text that a sequence of `length` takes."""
        return length + 1

    def _check_lengths(self, source: Source, fractions: Sequence[float]) -> None:
        for name, length, fraction in zip(SPLITS, self.corpus.lengths, fractions, strict=True):
            needed = self.needs(self.block if name == "train" else self.max_length)
            if length < needed and fraction > 0:
                raise UsageError(
                    f"the {name} split of {source.description} must have at least {needed} tokens for "
                    f"task.block={self.block} and task.eval_lengths={list(self.eval_lengths)}, but has {length}; take "
                    "a longer text, shorter blocks, or another task.split"
                )

    @cached_property
    def ids(self) -> dict[Split, Ids]:
        """The token ids of each split."""
        return {name: self.corpus.split(name) for name in SPLITS}

    @cached_property
    def begins(self) -> dict[Split, NDArray[np.int64]]:
        """Where the documents of each split begin, and where the last one ends."""
        return {name: self.corpus.begins(name) for name in SPLITS}

    def document_at(self, split: Split, places: NDArray[np.int64]) -> NDArray[np.int64]:
        """The number of the document that each place of a split belongs to; of the same shape."""
        return np.searchsorted(self.begins[split], places, side="right") - 1

    def draw_places(self, generator: torch.Generator, length: int) -> Tensor:
        """Where the `batch_size` windows of `length` tokens of a training batch begin."""
        return torch.randint(len(self.ids["train"]) - length + 1, (self.batch_size,), generator=generator)

    def blocks(self, split: Split, lengths: Mapping[str, int], ahead: int) -> dict[str, Sequence[Tensor]]:
        """Where the blocks of evaluation begin, batch by batch, for each set with the length of its blocks.

        A split is cut into regions as long as the longest block, and gone through in a fixed shuffled order. Where each
        length divides the longest, and the longest a batch, the n-th batches of all sets are the very same text.
        `ahead`: tokens that are read beyond a block.
        """
        longest = max(lengths.values())
        regions = self.regions(split, longest, ahead)
        found: dict[str, Sequence[Tensor]] = {}
        for name, length in lengths.items():
            within = torch.arange(longest // length) * length
            places = (regions.unsqueeze(1) + within).flatten()
            found[name] = torch.split(places, max(1, self.batch_size * lengths[""] // length))
        return found

    def regions(self, split: Split, length: int, ahead: int) -> Tensor:
        """Where the whole regions of a split begin, in a fixed shuffled order."""
        return torch.randperm((len(self.ids[split]) - ahead) // length, generator=stream("text", split)) * length

    @property
    def lengths_by_set(self) -> dict[str, int]:
        """The length of the sequences in each evaluation set."""
        return {"": self.block} | {f"@{length}": length for length in self.eval_lengths}

    def fingerprint(self) -> str:
        """SHA-256 of ids, splits, documents and vocabulary: of what is learned from, not of where it lay."""
        return self.corpus.fingerprint

    def encode(self, text: str) -> list[int]:
        """Token ids of a text. UsageError names a character that the tokeniser has no token for."""
        return self.tokeniser.write([text])[0].tolist()

    def decode(self, ids: Iterable[SupportsIndex]) -> str:
        """The text that token ids stand for; bytes that are no UTF-8 show as U+FFFD."""
        return self.tokeniser.read(ids)


def windows(ids: Ids, places: Tensor, length: int) -> NDArray[np.int64]:
    """The `length` tokens from each of `places` [B] on: [B, length]."""
    return ids[places.numpy()[:, None] + np.arange(length)].astype(np.int64)
