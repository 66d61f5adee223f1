"""A motif again and again."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from swapformer.task.base import whole_number
from swapformer.task.draws import permutations
from swapformer.task.layout import Written
from swapformer.task.lengths import evaluation_lengths, span
from swapformer.task.synthetic import Synthetic


class Periodic(Synthetic):
    """A motif of p different symbols again and again: `A B A B A B`.

    `symbols`: size of the alphabet. `periods`: [shortest, longest] p, all equally often. `lengths`: [shortest, longest]
    tokens in training; `eval_lengths`: each adds a set "@n", 2x is twice the longest trained.
    The period shows where the first symbol comes again: what follows is determined, and that one too where no period
    is longer; this is what is scored.
    UsageError: a number out of range, or too few different motifs.
    """

    remedy = "raise task.symbols or task.periods"

    def __init__(
        self,
        *,
        symbols: int = 26,
        periods: Sequence[int] = (2, 6),
        lengths: Sequence[int] = (12, 24),
        eval_lengths: Sequence[int | str] = (),
        batch_size: int = 32,
    ) -> None:
        self.periods = span("periods", periods)
        # With fewer, the last symbol of the longest motif could be told before it comes.
        self.symbols = whole_number("symbols", symbols, self.periods[1] + 1)
        self.lengths = span("lengths", lengths, self.periods[1] + 2)
        self.tokens = (*map(str, range(self.symbols)), "<pad>")
        self.vocab_size = len(self.tokens)
        super().__init__(
            lengths=self.lengths,
            eval_lengths=evaluation_lengths("eval_lengths", eval_lengths, self.lengths[1], self.periods[1] + 2),
            batch_size=batch_size,
            alphabet=self.symbols,
        )

    def tokens_at(self, length: int) -> int:
        return length - 1

    def width_at(self, length: int) -> int:
        return self.periods[1]

    def draw(self, generator: torch.Generator, lengths: Tensor, longest: int) -> Tensor:
        shortest, longest = self.periods
        motif = permutations(generator, len(lengths), self.symbols, longest)
        period = torch.randint(shortest, longest + 1, (len(lengths), 1), generator=generator)
        return motif.masked_fill(torch.arange(longest) >= period, self.symbols).unsqueeze(1)

    def write(self, content: Tensor, lengths: Tensor, longest: int) -> Written:
        motif, place = content.squeeze(1), torch.arange(longest)
        period = (motif != self.symbols).sum(1, keepdim=True)
        tokens = motif.gather(1, place % period).masked_fill(place >= lengths.unsqueeze(1), self.symbols)
        return Written(tokens, place > period - (period == self.periods[1]).long())
