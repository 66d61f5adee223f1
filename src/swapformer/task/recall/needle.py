"""Finding a pair in what means nothing."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from swapformer.task.base import whole_number
from swapformer.task.draws import permutations
from swapformer.task.layout import Written, close_gaps
from swapformer.task.lengths import evaluation_lengths, span
from swapformer.task.synthetic import Synthetic


class Needle(Synthetic):
    """A key with its value somewhere in n meaningless symbols, then the key again: `.3 .1 k2 v5 .0 … k2 v5`.

    `symbols`: size of the alphabet of the haystack. `keys`, `values`: of the needle's. `distractors`: other needles
    with other keys in the same haystack. `lengths`: [shortest, longest] haystack in training, needles included;
    `eval_lengths`: each adds a set "@n", 2x is twice the longest trained. Scored is the last value.
    UsageError: a number out of range, or a haystack too short for its needles.
    """

    remedy = "raise task.symbols, task.keys or task.values"

    def __init__(
        self,
        *,
        symbols: int = 26,
        keys: int = 16,
        values: int = 16,
        distractors: int = 2,
        lengths: Sequence[int] = (16, 64),
        eval_lengths: Sequence[int | str] = (),
        batch_size: int = 32,
    ) -> None:
        self.symbols, self.distractors = (
            whole_number("symbols", symbols, 2),
            whole_number("distractors", distractors, 0),
        )
        self.keys, self.values = whole_number("keys", keys, distractors + 2), whole_number("values", values, 2)
        self.lengths = span("lengths", lengths, 2 * distractors + 2)
        names = [f"{kind}{i}" for kind, size in ((".", symbols), ("k", keys), ("v", values)) for i in range(size)]
        self.tokens = (*names, "<pad>")
        self.vocab_size = len(self.tokens)
        super().__init__(
            lengths=self.lengths,
            eval_lengths=evaluation_lengths("eval_lengths", eval_lengths, self.lengths[1], 2 * distractors + 2),
            batch_size=batch_size,
            alphabet=self.vocab_size - 1,
        )

    def width_at(self, length: int) -> int:
        return 1 + length  # the key that is asked for stands first

    def tokens_at(self, length: int) -> int:
        return length + 1

    def draw(self, generator: torch.Generator, lengths: Tensor, longest: int) -> Tensor:
        rows, needles, filler = len(lengths), self.distractors + 1, self.vocab_size - 1
        # A needle takes two tokens and a symbol one, so that there are n − needles of them in order.
        things = torch.arange(longest - needles)
        beyond = things >= (lengths - needles).unsqueeze(1)
        straw = torch.randint(self.symbols, (rows, len(things)), generator=generator).masked_fill(beyond, filler)
        where = torch.rand(rows, len(things), generator=generator).masked_fill(beyond, -1.0).topk(needles).indices
        key = self.symbols + permutations(generator, rows, self.keys, needles)
        value = self.symbols + self.keys + torch.randint(self.values, (rows, needles), generator=generator)
        first = straw.scatter(1, where, key)
        second = torch.full_like(straw, filler).scatter(1, where, value)
        tokens = torch.stack([first, second], dim=2).flatten(1)
        haystack = close_gaps(tokens != filler, tokens, filler)[:, :longest]
        return torch.cat([key[:, :1], haystack], dim=1).unsqueeze(1)

    def write(self, content: Tensor, lengths: Tensor, longest: int) -> Written:
        key, haystack = content[:, 0, :1], content[:, 0, 1:]
        value = haystack.gather(1, (haystack == key).byte().argmax(1, keepdim=True) + 1)
        tokens = torch.cat([haystack, key, value], dim=1)
        return Written(tokens, (torch.arange(tokens.shape[1]) == tokens.shape[1] - 1).expand_as(tokens))
