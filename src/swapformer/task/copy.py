"""Copying: the plainest task that needs positions. See Kazemnejad et al. 2023 (arXiv:2305.19466) for both variants."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from math import comb, factorial

import torch
from torch import Tensor
from torch.nn.functional import pad

from swapformer.errors import UsageError
from swapformer.task.base import whole_number, whole_numbers
from swapformer.task.split import LISTED
from swapformer.task.synthetic import Synthetic


class Copy(Synthetic):
    """n symbols, a separator, then the same n symbols and an end token: `3 1 4 | 3 1 4 <end>`.

    `symbols`: size of the alphabet. `distinct`: how many different symbols an item may hold (drawn for each item; null:
    all of them; 1: one symbol repeated). `lengths`: [shortest, longest] n in training, every n equally often.
    `eval_lengths`: each adds an evaluation set "@n" of items with exactly n symbols. A sequence of n symbols has
    T = 2n + 1 inputs; shorter ones of a batch are padded on the right.
    UsageError: a number out of range, or a length with too few different items to split.
    """

    separator = " "
    end_token: int

    def __init__(
        self,
        *,
        symbols: int = 26,
        distinct: int | None = None,
        lengths: Sequence[int] = (2, 16),
        eval_lengths: Sequence[int] = (),
        batch_size: int = 32,
    ) -> None:
        self.symbols = whole_number("symbols", symbols, 1)
        self.distinct = self.symbols if distinct is None else whole_number("distinct", distinct, 1)
        if self.distinct > self.symbols:
            raise UsageError(
                f"task.distinct must be at most task.symbols={symbols}, but is {distinct}; take null for all"
            )
        self.lengths = whole_numbers("lengths", lengths, 1)
        if len(self.lengths) != 2 or self.lengths[0] > self.lengths[1]:
            raise UsageError(f"task.lengths must be [shortest, longest], but is {list(self.lengths)}")
        self.padding_token = symbols
        self.separator_token = symbols + 1
        self.end_token = symbols + 2
        self.vocab_size = symbols + 3
        self.tokens = (*map(str, range(symbols)), "<pad>", "|", "<end>")
        self.remedy = "raise task.symbols"
        if self.distinct > 1:
            self.remedy += ", or let task.lengths and task.eval_lengths begin later"
        super().__init__(
            lengths=range(self.lengths[0], self.lengths[1] + 1),
            eval_lengths=whole_numbers("eval_lengths", eval_lengths, 1),
            batch_size=batch_size,
            alphabet=self.symbols,
        )

    def settings(self) -> dict[str, object]:
        return {
            "symbols": self.symbols,
            "distinct": self.distinct,
            "lengths": self.lengths,
            "eval_lengths": self.eval_lengths,
            "batch_size": self.batch_size,
        }

    def tokens_at(self, length: int) -> int:
        return 2 * length + 1

    def list_items(self, length: int) -> Tensor | None:
        # A palette larger than the item is no different from one as large as it. Each palette has at least palette!
        # items that use all of it, and the items of a single one are no more than all.
        palette = min(self.distinct, length)
        if max(palette**length, comb(self.symbols, palette) * factorial(palette)) > LISTED:
            return None
        places = torch.arange(palette**length).unsqueeze(1) // palette ** torch.arange(length) % palette
        palettes = torch.tensor(list(combinations(range(self.symbols), palette)))
        items = torch.unique(palettes[:, places].view(-1, length), dim=0)
        return items.unsqueeze(1) if len(items) <= LISTED else None

    def draw(self, generator: torch.Generator, lengths: Tensor, width: int) -> Tensor:
        content = torch.randint(self.distinct, (len(lengths), width), generator=generator)
        if self.distinct < self.symbols:
            palettes = torch.rand(len(lengths), self.symbols, generator=generator).topk(self.distinct).indices
            content = palettes.gather(1, content)
        return content.masked_fill(torch.arange(width) >= lengths.unsqueeze(1), self.padding_token).unsqueeze(1)

    def write(self, content: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        n = lengths.unsqueeze(1)
        width = content.shape[2]
        place = torch.arange(2 * width + 2)
        # Up to the separator the item is read from its start, after it from its start again; beyond its end is filler.
        source = (place - (n + 1) * (place > n)).clamp(max=width)
        sequences = pad(content.squeeze(1), (0, 1), value=self.padding_token).gather(1, source)
        sequences.scatter_(1, n, self.separator_token).scatter_(1, 2 * n + 1, self.end_token)
        return sequences, lengths + 1, 2 * lengths + 2
