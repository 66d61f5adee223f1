"""Symbols in their order."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from swapformer.task.base import whole_number
from swapformer.task.layout import Written
from swapformer.task.lengths import evaluation_lengths, span
from swapformer.task.synthetic import Synthetic


class Ordered(Synthetic):
    """Symbols in their order, from any of them on: `Y Z A B`, or every second: `A C E`, and so on; after Z comes A.

    `symbols`: size of the alphabet. `strides`: steps of 1 … strides, all equally often. `lengths`: [shortest, longest]
    tokens in training; `eval_lengths`: each adds a set "@n", 2x is twice the longest trained.
    Scored is every token but the first, and but the second where there are several strides.
    UsageError: a number out of range, or fewer sequences than can be split.
    """

    remedy = "raise task.symbols or task.strides"

    def __init__(
        self,
        *,
        symbols: int = 26,
        strides: int = 4,
        lengths: Sequence[int] = (4, 16),
        eval_lengths: Sequence[int | str] = (),
        batch_size: int = 32,
    ) -> None:
        self.strides = whole_number("strides", strides, 1)
        self.symbols = whole_number("symbols", symbols, self.strides + 1)
        self.lengths = span("lengths", lengths, 3)
        letters = [chr(ord("A") + index) for index in range(26)]
        self.tokens = (*(letters[:symbols] if symbols <= 26 else map(str, range(symbols))), "<pad>")
        self.vocab_size = len(self.tokens)
        super().__init__(
            lengths=self.lengths,
            eval_lengths=evaluation_lengths("eval_lengths", eval_lengths, self.lengths[1], 3),
            batch_size=batch_size,
            alphabet=self.symbols,
        )

    def tokens_at(self, length: int) -> int:
        return length - 1

    def width_at(self, length: int) -> int:
        return 2

    def draw(self, generator: torch.Generator, lengths: Tensor, longest: int) -> Tensor:
        start = torch.randint(self.symbols, (len(lengths), 1), generator=generator)
        stride = torch.randint(1, self.strides + 1, (len(lengths), 1), generator=generator)
        return torch.cat([start, stride], dim=1).unsqueeze(1)

    def write(self, content: Tensor, lengths: Tensor, longest: int) -> Written:
        start, stride = content[:, 0, :1], content[:, 0, 1:]
        place = torch.arange(longest)
        tokens = (start + stride * place) % self.symbols
        scored = (place > int(self.strides > 1)).expand_as(tokens)
        return Written(tokens.masked_fill(place >= lengths.unsqueeze(1), self.symbols), scored)
