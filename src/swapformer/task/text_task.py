"""Bases of tasks on text: the corpus, its tokens, and the sequences that are cut out of it."""

from __future__ import annotations

import hashlib
import json
from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from functools import cached_property, partial
from typing import Any, Literal, SupportsIndex

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from swapformer.errors import UsageError
from swapformer.random import stream
from swapformer.ranges import Count, Share
from swapformer.task.base import Batch, EvaluationSet, Pieces, Split, Task
from swapformer.task.corpus import corpus_of
from swapformer.task.division import SPLITS
from swapformer.task.settings import (
    PassesSettings,
    at_least,
    evaluation_lengths,
    split_shares,
)
from swapformer.task.source import Source
from swapformer.task.tokeniser import LearnedTokens, Tokeniser

Ids = NDArray[Any]

_WINDOWS = 1000
"""Windows that are read before their memory is given back: the system reads up to 64 KiB around each."""
_LARGE = 1 << 26
"""Bytes of ids that may stay in memory."""


class TokenisedTask(PassesSettings, Task):
    """A task whose symbols are a tokeniser's; call `set_tokens` once, when the tokeniser has learned."""

    tokeniser: Tokeniser
    special_tokens: Sequence[str] = ()
    """The special tokens that the task needs."""

    def set_tokens(self, tokeniser: Tokeniser, learned: LearnedTokens) -> None:
        """Write and read with `tokeniser`, which has learned this."""
        self.tokeniser = tokeniser.with_learned(learned)
        self.tokens = learned.tokens
        self.vocab_size = len(self.tokens)

    @property
    def unit(self) -> str:
        return self.tokeniser.unit

    def vocabulary(self) -> str:
        facts = {
            "task": type(self).__name__,
            "predicts_next": self.predicts_next,
            "start_token": self.start_token,
            "end_token": self.end_token,
            "interface": asdict(self.interface),
        }
        return json.dumps({**json.loads(self.tokeniser.to_json()), "language": facts}) + "\n"

    def encode(self, text: str) -> list[int]:
        """Token ids of a text. UsageError names a character that the tokeniser has no token for."""
        ids: list[int] = self.tokeniser.write([text])[0].tolist()
        return ids

    def decode(self, ids: Iterable[SupportsIndex]) -> str:
        """The text of token ids; bytes that are not UTF-8 show as U+FFFD."""
        return self.tokeniser.read(ids)


class TextTask(TokenisedTask):
    """A task on the documents of `source`, written as `tokeniser` does.

    `split`: shares of training, validation and test where the source has none of its own; see Division. `block`: the
    length of a training sequence; a batch has `batch_size`, one of evaluation `eval_batch_size` (null: as many).
    `eval_lengths`: each adds an evaluation set "@L".
    UsageError: a split shorter than a sequence, shares that are none, and what source and tokeniser say.
    """

    shortest = 1
    """Fewest tokens of a sequence."""
    own_tokens = 0
    """Tokens of a sequence that the task writes beside the text."""
    lookahead = 0
    """Tokens of text that are read behind a sequence."""
    evaluation_stream = "text"
    """Name of the random streams that evaluation batches are made with."""

    def __init__(
        self,
        *,
        source: Source,
        tokeniser: Tokeniser,
        split: Sequence[Share] = (0.9, 0.05, 0.05),
        block: Count = 64,
        eval_lengths: Sequence[Count | str] = (),
        batch_size: Count = 16,
        eval_batch_size: Count | None = None,
    ) -> None:
        self.block = self.train_length = self.longest_trained = at_least("block", block, self.shortest)
        self.batch_size = batch_size
        self.eval_batch_size = eval_batch_size or batch_size
        self.eval_lengths = evaluation_lengths("eval_lengths", eval_lengths, self.block, self.shortest)
        self.max_length = max(self.block, *self.eval_lengths, 0)
        self.shares = source.own_shares or split_shares(split)
        self.corpus = corpus_of(source, tokeniser, self.special_tokens, self.shares)
        self.set_tokens(tokeniser, self.corpus.learned)
        self._check_lengths(source)
        self._windows = 0

    def crowded_batch(self) -> str | None:
        tokens = self.corpus.lengths[0]
        if self.batch_size * self.block <= tokens:
            return None
        return (
            f"a batch must not be larger than the training text, but task.batch_size={self.batch_size} times "
            f"task.block={self.block} are more than its {tokens} tokens; take task.batch_size={tokens // self.block} "
            "or less, or a longer text"
        )

    def tokens_needed(self, length: int) -> int:
        """The tokens of text that a sequence of `length` takes."""
        return length - self.own_tokens + self.lookahead

    def _check_lengths(self, source: Source) -> None:
        cut = source.own_shares is None
        for name, length, fraction in zip(SPLITS, self.corpus.lengths, self.shares, strict=True):
            needed = self.tokens_needed(self.block if name == "train" else self.max_length)
            if length < needed and fraction > 0:
                raise UsageError(
                    f"the {name} split of {source.description} must have at least {needed} tokens for "
                    f"task.block={self.block} and task.eval_lengths={list(self.eval_lengths)}, but has {length}; take "
                    f"a longer text{', shorter blocks, or another task.split' if cut else ' or shorter blocks'}"
                )

    @cached_property
    def ids(self) -> dict[Split, Ids]:
        """The token ids of each split."""
        return {name: self.corpus.split(name) for name in SPLITS}

    @cached_property
    def begins(self) -> dict[Split, NDArray[np.int64]]:
        """The starts of the documents of each split, and the end of the last one."""
        return {name: self.corpus.begins(name) for name in SPLITS}

    def windows(self, split: Split, starts: Tensor, length: int) -> Tensor:
        """The `length` tokens from each of `starts` [B] of a split on: [B, length]."""
        return self.take(split, starts.unsqueeze(1) + torch.arange(length))

    def take(self, split: Split, positions: Tensor) -> Tensor:
        """The tokens at `positions` [B,T] of a split, a row of which are near each other."""
        found = self.ids[split][positions.numpy()].astype(np.int64)
        self._windows += len(positions)
        if self._windows > _WINDOWS and self.corpus.nbytes > _LARGE:
            self.corpus.release()
            self._windows = 0
        return torch.from_numpy(found)

    def documents(self, split: Split, starts: Tensor, length: int) -> Tensor:
        """The numbers of the documents that the `length` tokens from each of `starts` [B] on belong to: [B, length]."""
        at = starts.unsqueeze(1) + torch.arange(length)
        return torch.from_numpy(np.searchsorted(self.begins[split], at.numpy(), side="right") - 1)

    def region_starts(self, split: Split, length: int) -> Tensor:
        """The starts of the whole regions of a split, in a fixed shuffled order."""
        count = (len(self.ids[split]) - self.lookahead) // length
        return torch.randperm(count, generator=stream("text", split)) * length

    @property
    def lengths_by_set(self) -> dict[str, int]:
        """The length of the sequences in each evaluation set."""
        return {"": self.block} | {f"@{length}": length for length in self.eval_lengths}

    def fingerprint(self) -> str:
        """SHA-256 of ids, splits, documents and vocabulary: of what is learned from, not of where it lay.

        Where a random choice makes more of it than blocks, also of a first batch: a change of that choice shows.
        """
        if self.evaluation_stream == "text":
            return self.corpus.fingerprint
        batch = self.train_batch(0, 0)
        drawn = b"".join(part.numpy().tobytes() for part in ((batch.source or batch).inputs, batch.targets))
        return hashlib.sha256(f"{type(self).__name__} {self.corpus.fingerprint}".encode() + drawn).hexdigest()


class BlockTask(TextTask):
    """A task on text whose sequences are blocks of successive tokens.

    `order`: a batch is blocks at random positions of the training text (random), or the text is cut into blocks that do
    not overlap, and each is seen once an epoch, in an order of its own for each seed and epoch (shuffled). Evaluation
    cuts a split into blocks that do not overlap and goes through them once, in a fixed shuffled order.
    """

    independent = False
    """Whether a block's sequence depends on nothing but where the block starts, so that each device makes its own."""

    def __init__(self, *, order: Literal["random", "shuffled"] = "random", **settings: Any) -> None:
        self.order = order
        self._orders: dict[tuple[int, int], Tensor] = {}
        super().__init__(**settings)

    @abstractmethod
    def batch(self, split: Split, starts: Tensor, length: int, generator: torch.Generator) -> Batch:
        """The sequences of the `length` tokens of a split that begin at each of `starts` [B]."""

    def train_batch(self, seed: int, step: int) -> Batch:
        return self._blocks_at(seed, step, slice(None))

    def train_rows(self, seed: int, step: int, low: int, high: int) -> Batch:
        rows = slice(low, high)
        return self._blocks_at(seed, step, rows) if self.independent else super().train_rows(seed, step, low, high)

    def _blocks_at(self, seed: int, step: int, rows: slice) -> Batch:
        generator = stream("train", int(seed), int(step))
        starts = self._starts(int(seed), int(step), generator)
        return self.batch("train", starts[rows], self.block - self.own_tokens, generator)

    def _starts(self, seed: int, step: int, generator: torch.Generator) -> Tensor:
        """The starts of the blocks of a training batch [B]."""
        if self.order == "shuffled":
            return self._shuffled(seed, step)
        last = len(self.ids["train"]) - self.tokens_needed(self.block)
        return torch.randint(last + 1, (self.batch_size,), generator=generator)

    def seen(self, seed: int, steps: int) -> NDArray[np.bool_]:
        """Which tokens of the training text are in the batches of the first `steps` steps [n]."""
        found = np.zeros(len(self.ids["train"]), dtype=bool)
        for step in range(steps):
            starts = self._starts(seed, step, stream("train", seed, step)).numpy()
            found[(starts[:, None] + np.arange(self.tokens_needed(self.block))).ravel()] = True
        return found

    def _shuffled(self, seed: int, step: int) -> Tensor:
        """The starts of the blocks of batch number `step`, where epoch follows epoch without a gap."""
        length = self.block - self.own_tokens
        count = (len(self.ids["train"]) - self.lookahead) // length
        number = torch.arange(step * self.batch_size, (step + 1) * self.batch_size)
        epochs = sorted({*(number // count).tolist()})
        for key in [key for key in self._orders if key[0] != seed or key[1] not in epochs]:
            del self._orders[key]
        for epoch in epochs:
            if (seed, epoch) not in self._orders:
                self._orders[seed, epoch] = torch.randperm(count, generator=stream("order", seed, epoch))
        parts = [self._orders[seed, epoch][number[number // count == epoch] % count] for epoch in epochs]
        return torch.cat(parts) * length

    def evaluation(self, split: Literal["val", "test"]) -> list[EvaluationSet]:
        if len(self.ids[split]) == 0:
            return []
        lengths = {name: length - self.own_tokens for name, length in self.lengths_by_set.items()}
        return [
            EvaluationSet(name, len(batches), partial(self._evaluation_batch, split, name, batches, lengths[name]))
            for name, batches in self.block_starts(split, lengths).items()
        ]

    def _evaluation_batch(self, split: Split, name: str, starts: Sequence[Tensor], length: int, index: int) -> Batch:
        return self.batch(split, starts[index], length, stream(self.evaluation_stream, split, name, index))

    def block_starts(self, split: Split, lengths: Mapping[str, int]) -> dict[str, Sequence[Tensor]]:
        """The starts of the blocks of evaluation, batch by batch, for each set with the length of its blocks.

        A split is cut into regions as long as the longest block, and gone through in a fixed shuffled order. Where each
        length divides the longest, and the longest a batch, the n-th batches of all sets are the very same text.
        """
        longest = max(lengths.values())
        regions = self.region_starts(split, longest)
        found: dict[str, Sequence[Tensor]] = {}
        for name, length in lengths.items():
            within = torch.arange(longest // length) * length
            starts = (regions.unsqueeze(1) + within).flatten()
            found[name] = Pieces(starts, self.eval_batch_size * lengths[""] // length)
        return found


class PackedTask(BlockTask):
    """A task on text whose sequences may hold several documents.

    `packing`: what a token of a sequence sees: whatever the pattern allows (blocks), or of that only its own document
    (documents). `reset_positions`: positions begin at 0 in every document.
    """

    def __init__(
        self, *, packing: Literal["blocks", "documents"] = "blocks", reset_positions: bool = False, **settings: Any
    ) -> None:
        self.packing, self.reset_positions = packing, reset_positions
        if self.reset_positions and packing == "blocks":
            raise UsageError(
                "task.reset_positions needs documents that positions are reset at, but task.packing=blocks knows none; "
                "set task.packing=documents"
            )
        super().__init__(**settings)

    def positions(self, document: Tensor) -> Tensor | None:
        """Positions of tokens whose documents [B,T] follow one another; None where they are counted in the sequence."""
        if not self.reset_positions:
            return None
        position = torch.arange(document.shape[1]).expand_as(document)
        first = torch.ones_like(document, dtype=torch.bool)
        first[:, 1:] = document[:, 1:] != document[:, :-1]
        return position - position.masked_fill(~first, 0).cummax(1).values
