"""Questions that are lists of symbols."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from math import comb, factorial

import torch
from torch import Tensor

from swapformer.errors import UsageError
from swapformer.task.answering import Answering
from swapformer.task.base import whole_number
from swapformer.task.lengths import evaluation_lengths, span
from swapformer.task.split import LISTED


class SymbolList(Answering):
    """n symbols in a row, and something that follows from them.

    `symbols`: size of the alphabet. `distinct`: how many different symbols an item may hold (drawn for each item; null:
    all of them; 1: one symbol repeated). `lengths`: [shortest, longest] n in training, every n equally often.
    `eval_lengths`: each adds an evaluation set "@n" of items with exactly n symbols; 2x is twice the longest trained.
    `as_source`: the symbols are the source of an encoder-decoder.
    UsageError: a number out of range, or a length with too few different items to split.
    """

    closed = True
    """Whether an answer may have several tokens, and so needs an end."""

    def __init__(
        self,
        *,
        symbols: int = 26,
        distinct: int | None = None,
        lengths: Sequence[int] = (2, 16),
        eval_lengths: Sequence[int | str] = (),
        batch_size: int = 32,
        as_source: bool = False,
    ) -> None:
        self.symbols = whole_number("symbols", symbols, 1)
        self.distinct = self.symbols if distinct is None else whole_number("distinct", distinct, 1)
        if self.distinct > self.symbols:
            raise UsageError(
                f"task.distinct must be at most task.symbols={symbols}, but is {distinct}; take null for all"
            )
        self.lengths = span("lengths", lengths)
        self.separator_token = symbols + 1
        self.end_token = symbols + 2 if self.closed else None
        self.tokens = (*map(str, range(symbols)), "<pad>", "|", *(["<end>"] if self.closed else []))
        self.vocab_size = len(self.tokens)
        self.remedy = self._remedy()
        super().__init__(
            lengths=self.lengths,
            eval_lengths=evaluation_lengths("eval_lengths", eval_lengths, self.lengths[1]),
            batch_size=batch_size,
            alphabet=self.symbols,
            as_source=as_source,
        )

    def _remedy(self) -> str:
        later = ", or let task.lengths and task.eval_lengths begin later"
        return "raise task.symbols" + (later if self.distinct > 1 else "")

    def question_at(self, length: int) -> int:
        return length

    def question(self, content: Tensor, lengths: Tensor) -> Tensor:
        return content.squeeze(1)

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

    def draw(self, generator: torch.Generator, lengths: Tensor, longest: int) -> Tensor:
        content = torch.randint(self.distinct, (len(lengths), longest), generator=generator)
        if self.distinct < self.symbols:
            palettes = torch.rand(len(lengths), self.symbols, generator=generator).topk(self.distinct).indices
            content = palettes.gather(1, content)
        return content.masked_fill(torch.arange(longest) >= lengths.unsqueeze(1), self.symbols).unsqueeze(1)
