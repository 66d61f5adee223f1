"""Tasks of repetition: a repeated passage (induction), an ordered alphabet, a periodic motif."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from swapformer.errors import UsageError
from swapformer.ranges import Count, Natural, Several
from swapformer.task.layout import ItemLayout, permutations
from swapformer.task.settings import at_least, length_range
from swapformer.task.synthetic import Synthetic


class Induction(Synthetic):
    """Repeat a passage of n different symbols after some others: `3 1 4 9 9 3 1 4` (Olsson et al. 2022).

    `symbols`: size of the alphabet. `distractors`: symbols between the two, different from each other and from the
    passage's (arXiv:2209.11895 has none). `lengths`: [shortest, longest] n in training; `eval_lengths`: each adds a set
    "@n", 2x is twice the longest trained.
    No symbol of the first passage comes twice, so the second one shows with its first symbol: what follows is scored.
    UsageError: a number out of range, or too small an alphabet.
    """

    remedy = "raise task.symbols"
    shortest = 2

    def __init__(
        self, *, symbols: Several = 128, distractors: Natural = 0, lengths: Sequence[int] = (4, 16), **settings: Any
    ) -> None:
        self.distractors = distractors
        self.symbols = symbols
        self.tokens = (*map(str, range(symbols)), "<pad>")
        super().__init__(lengths=lengths, **settings)

    def require_room(self, longest: int) -> None:
        if self.symbols < (needed := longest + self.distractors + 2):
            raise UsageError(
                f"task.symbols must be at least {needed}, since a passage repeats none and leaves two, but is "
                f"{self.symbols}; raise it, or shorten task.lengths and task.eval_lengths"
            )

    def tokens_at(self, length: int) -> int:
        return 2 * length + self.distractors - 1

    def width_at(self, length: int) -> int:
        return length + self.distractors

    def draw(self, generator: torch.Generator, lengths: Tensor, longest: int) -> Tensor:
        order = permutations(generator, len(lengths), self.symbols, longest + self.distractors)
        beyond = torch.arange(longest + self.distractors) >= (lengths + self.distractors).unsqueeze(1)
        return order.masked_fill(beyond, self.symbols).unsqueeze(1)

    def write(self, content: Tensor, lengths: Tensor, longest: int) -> ItemLayout:
        once, n = content.squeeze(1), lengths.unsqueeze(1)
        position, again = torch.arange(2 * longest + self.distractors), n + self.distractors
        tokens = once.gather(1, (position - again * (position >= again)).clamp(max=once.shape[1] - 1))
        return ItemLayout(tokens.masked_fill(position >= again + n, self.symbols), position > again)


class Ordered(Synthetic):
    """Continue the alphabet in steps: `Y Z A B`, or every second symbol: `A C E`, and so on; after Z comes A.

    `symbols`: size of the alphabet. `strides`: steps of 1 … strides, all equally often. `lengths`: [shortest, longest]
    tokens in training; `eval_lengths`: each adds a set "@n", 2x is twice the longest trained.
    Scored is every token but the first, and but the second where there are several strides.
    UsageError: a number out of range, or fewer sequences than can be split.
    """

    remedy = "raise task.symbols or task.strides"
    same_at_each_length = True
    shortest = 3

    def __init__(
        self, *, symbols: int = 26, strides: Count = 4, lengths: Sequence[int] = (4, 16), **settings: Any
    ) -> None:
        self.strides = strides
        self.symbols = at_least("symbols", symbols, self.strides + 1)
        letters = [chr(ord("A") + index) for index in range(26)]
        self.tokens = (*(letters[:symbols] if symbols <= 26 else map(str, range(symbols))), "<pad>")
        super().__init__(lengths=lengths, **settings)

    def tokens_at(self, length: int) -> int:
        return length - 1

    def width_at(self, length: int) -> int:
        return 2

    def draw(self, generator: torch.Generator, lengths: Tensor, longest: int) -> Tensor:
        start = torch.randint(self.symbols, (len(lengths), 1), generator=generator)
        stride = torch.randint(1, self.strides + 1, (len(lengths), 1), generator=generator)
        return torch.cat([start, stride], dim=1).unsqueeze(1)

    def write(self, content: Tensor, lengths: Tensor, longest: int) -> ItemLayout:
        start, stride = content[:, 0, :1], content[:, 0, 1:]
        position = torch.arange(longest)
        tokens = (start + stride * position) % self.symbols
        scored = (position > int(self.strides > 1)).expand_as(tokens)
        return ItemLayout(tokens.masked_fill(position >= lengths.unsqueeze(1), self.symbols), scored)


class Periodic(Synthetic):
    """Continue a motif of p different symbols: `A B A B A B`.

    `symbols`: size of the alphabet. `periods`: [shortest, longest] p, all equally often. `lengths`: [shortest, longest]
    tokens in training; `eval_lengths`: each adds a set "@n", 2x is twice the longest trained.
    The period shows where the first symbol comes again: what follows is determined, and that one too where no period
    is longer; this is what is scored.
    UsageError: a number out of range, or too few different motifs.
    """

    remedy = "raise task.symbols or task.periods"
    same_at_each_length = True

    def __init__(
        self, *, symbols: int = 26, periods: Sequence[int] = (2, 6), lengths: Sequence[int] = (12, 24), **settings: Any
    ) -> None:
        self.periods = length_range("periods", periods)
        # With fewer, the last symbol of the longest motif could be told before it comes.
        self.symbols = at_least("symbols", symbols, self.periods[1] + 1)
        self.shortest = self.periods[1] + 2
        self.tokens = (*map(str, range(self.symbols)), "<pad>")
        super().__init__(lengths=lengths, **settings)

    def tokens_at(self, length: int) -> int:
        return length - 1

    def width_at(self, length: int) -> int:
        return self.periods[1]

    def draw(self, generator: torch.Generator, lengths: Tensor, longest: int) -> Tensor:
        shortest, longest = self.periods
        motif = permutations(generator, len(lengths), self.symbols, longest)
        period = torch.randint(shortest, longest + 1, (len(lengths), 1), generator=generator)
        return motif.masked_fill(torch.arange(longest) >= period, self.symbols).unsqueeze(1)

    def write(self, content: Tensor, lengths: Tensor, longest: int) -> ItemLayout:
        motif, position = content.squeeze(1), torch.arange(longest)
        period = (motif != self.symbols).sum(1, keepdim=True)
        tokens = motif.gather(1, position % period).masked_fill(position >= lengths.unsqueeze(1), self.symbols)
        return ItemLayout(tokens, position > period - (period == self.periods[1]).long())
