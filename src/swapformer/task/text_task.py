"""What all tasks share whose inputs are written by a tokeniser.

What tasks on a text share: its corpus, its tokens, and the blocks that it is cut into."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, Literal, SupportsIndex

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from swapformer.errors import UsageError
from swapformer.random import stream
from swapformer.task.base import Split, Task
from swapformer.task.corpus import corpus_of
from swapformer.task.division import SPLITS
from swapformer.task.settings import evaluation_lengths, presence, shares, whole_number
from swapformer.task.source import Source
from swapformer.task.tokeniser import Learned, Tokeniser


class WrittenTask(Task):
    """A task whose symbols are a tokeniser's; call `know` once, when the tokeniser has learned."""

    tokeniser: Tokeniser

    def know(self, tokeniser: Tokeniser, learned: Learned) -> None:
        """Write and read with `tokeniser`, which has learned this."""
        self.tokeniser = tokeniser.with_learned(learned)
        self.tokens = learned.tokens
        self.vocab_size = len(self.tokens)

    def vocabulary(self) -> str:
        return self.tokeniser.to_json()

    def encode(self, text: str) -> list[int]:
        """Token ids of a text. UsageError names a character that the tokeniser has no token for."""
        ids: list[int] = self.tokeniser.write([text])[0].tolist()
        return ids

    def decode(self, ids: Iterable[SupportsIndex]) -> str:
        """The text that token ids stand for; bytes that are no UTF-8 show as U+FFFD."""
        return self.tokeniser.read(ids)


Ids = NDArray[Any]
Packing = Literal["blocks", "documents"]

_WINDOWS = 1000
"""Windows that are read before their memory is given back: the system reads up to 64 KiB around each."""
_LARGE = 1 << 26
"""Bytes of ids that may stay in memory."""


class TextTask(WrittenTask):
    """A task on the documents of `source`, written as `tokeniser` does.

    `split`: shares of training, validation and test; see Division for what goes where. `block`: the length of a
    training sequence; a batch has `batch_size`. `eval_lengths`: each adds an evaluation set "@L". `special`: the
    special tokens that the task needs. `packing`: what a place of a sequence sees: whatever the pattern allows
    (blocks), or of that only its own document (documents). `reset_positions`: positions begin at 0 in every document.
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
        packing: Packing = "blocks",
        reset_positions: bool = False,
    ) -> None:
        if packing not in ("blocks", "documents"):
            raise UsageError(f"task.packing must be blocks or documents, but is {packing!r}")
        self.packing, self.reset_positions = packing, presence("reset_positions", reset_positions)
        if self.reset_positions and packing == "blocks":
            raise UsageError(
                "task.reset_positions needs documents that positions are reset at, but task.packing=blocks knows none; "
                "set task.packing=documents"
            )
        self.block = self.train_length = self.longest_trained = whole_number("block", block, 1)
        self.batch_size = whole_number("batch_size", batch_size, 1)
        self.eval_lengths = evaluation_lengths("eval_lengths", eval_lengths, self.block)
        self.max_length = max(self.block, *self.eval_lengths, 0)
        fractions = shares(split)
        self.corpus = corpus_of(source, tokeniser, special, fractions)
        self.know(tokeniser, self.corpus.learned)
        self._check_lengths(source, fractions)
        self._windows = 0

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

    def windows(self, split: Split, places: Tensor, length: int) -> Tensor:
        """The `length` tokens from each of `places` [B] of a split on: [B, length]."""
        return self.take(split, places.unsqueeze(1) + torch.arange(length))

    def take(self, split: Split, places: Tensor) -> Tensor:
        """The tokens at `places` [B,T] of a split, a row of which are near each other."""
        found = self.ids[split][places.numpy()].astype(np.int64)
        self._windows += len(places)
        if self._windows > _WINDOWS and self.corpus.ids.nbytes > _LARGE:
            self.corpus.release()
            self._windows = 0
        return torch.from_numpy(found)

    def documents(self, split: Split, places: Tensor, length: int) -> Tensor:
        """The numbers of the documents that the `length` tokens from each of `places` [B] on belong to: [B, length]."""
        at = places.unsqueeze(1) + torch.arange(length)
        return torch.from_numpy(np.searchsorted(self.begins[split], at.numpy(), side="right") - 1)

    def positions(self, document: Tensor) -> Tensor | None:
        """Positions of places whose documents [B,T] follow one another; None where they are the places."""
        if not self.reset_positions:
            return None
        place = torch.arange(document.shape[1]).expand_as(document)
        first = torch.ones_like(document, dtype=torch.bool)
        first[:, 1:] = document[:, 1:] != document[:, :-1]
        return place - place.masked_fill(~first, 0).cummax(1).values

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
