"""A passage that comes again."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from swapformer.errors import UsageError
from swapformer.task.base import whole_number
from swapformer.task.draws import permutations
from swapformer.task.layout import Written
from swapformer.task.lengths import evaluation_lengths, span
from swapformer.task.synthetic import Synthetic


class Induction(Synthetic):
    """A passage of n different symbols, others, and the passage again: `3 1 4 9 9 3 1 4` (Olsson et al. 2022).

    `symbols`: size of the alphabet. `distractors`: symbols between the two, different from each other and from the
    passage's (arXiv:2209.11895 has none). `lengths`: [shortest, longest] n in training; `eval_lengths`: each adds a set
    "@n", 2x is twice the longest trained.
    No symbol of the first passage comes twice, so the second one shows with its first symbol: what follows is scored.
    UsageError: a number out of range, or too small an alphabet.
    """

    remedy = "raise task.symbols"

    def __init__(
        self,
        *,
        symbols: int = 128,
        distractors: int = 0,
        lengths: Sequence[int] = (4, 16),
        eval_lengths: Sequence[int | str] = (),
        batch_size: int = 32,
    ) -> None:
        self.distractors = whole_number("distractors", distractors, 0)
        self.lengths = span("lengths", lengths, 2)
        tested = evaluation_lengths("eval_lengths", eval_lengths, self.lengths[1], 2)
        self.symbols = whole_number("symbols", symbols, 2)
        needed = max(*self.lengths, *tested) + self.distractors + 2
        if self.symbols < needed:
            raise UsageError(
                f"task.symbols must be at least {needed}, since a passage repeats none and leaves two, but is "
                f"{symbols}; raise it, or shorten task.lengths and task.eval_lengths"
            )
        self.tokens = (*map(str, range(symbols)), "<pad>")
        self.vocab_size = len(self.tokens)
        super().__init__(lengths=self.lengths, eval_lengths=tested, batch_size=batch_size, alphabet=self.symbols)

    def tokens_at(self, length: int) -> int:
        return 2 * length + self.distractors - 1

    def width_at(self, length: int) -> int:
        return length + self.distractors

    def draw(self, generator: torch.Generator, lengths: Tensor, longest: int) -> Tensor:
        order = permutations(generator, len(lengths), self.symbols, longest + self.distractors)
        beyond = torch.arange(longest + self.distractors) >= (lengths + self.distractors).unsqueeze(1)
        return order.masked_fill(beyond, self.symbols).unsqueeze(1)

    def write(self, content: Tensor, lengths: Tensor, longest: int) -> Written:
        once, n = content.squeeze(1), lengths.unsqueeze(1)
        place, again = torch.arange(2 * longest + self.distractors), n + self.distractors
        tokens = once.gather(1, (place - again * (place >= again)).clamp(max=once.shape[1] - 1))
        return Written(tokens.masked_fill(place >= again + n, self.symbols), place > again)
