"""Tasks on lists of symbols: copy, reverse, sort, maximum, parity and count."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from math import comb, factorial
from typing import Any

import torch
from torch import Tensor

from swapformer import ranges
from swapformer.errors import UsageError
from swapformer.task.content_split import LISTED
from swapformer.task.layout import column
from swapformer.task.questions import QuestionTask


class SymbolList(QuestionTask):
    """Base of tasks on n symbols in a row, whose answer follows from them.

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
        symbols: ranges.Count = 26,
        distinct: ranges.Count | None = None,
        lengths: Sequence[int] = (2, 16),
        **settings: Any,
    ) -> None:
        self.symbols = symbols
        self.distinct = self.symbols if distinct is None else distinct
        if self.distinct > self.symbols:
            raise UsageError(
                f"task.distinct must be at most task.symbols={symbols}, but is {distinct}; take null for all"
            )
        self.separator_token = symbols + 1
        self.end_token = symbols + 2 if self.closed else None
        self.tokens = (*map(str, range(symbols)), "<pad>", "|", *(["<end>"] if self.closed else []))
        self.remedy = self._remedy()
        super().__init__(lengths=lengths, **settings)

    def _remedy(self) -> str:
        later = ", or let task.lengths and task.eval_lengths begin later"
        return "raise task.symbols" + (later if self.distinct > 1 else "")

    def answer_at(self, length: int) -> int:
        return length if self.closed else 1

    def list_items(self, length: int) -> Tensor | None:
        # A palette larger than the item is no different from one as large as it. Each palette has at least palette!
        # items that use all of it, and the items of a single one are no more than all.
        palette = min(self.distinct, length)
        if max(palette**length, comb(self.symbols, palette) * factorial(palette)) > LISTED:
            return None
        digits = torch.arange(palette**length).unsqueeze(1) // palette ** torch.arange(length) % palette
        palettes = torch.tensor(list(combinations(range(self.symbols), palette)))
        items = torch.unique(palettes[:, digits].view(-1, length), dim=0)
        return items.unsqueeze(1) if len(items) <= LISTED else None

    def draw(self, generator: torch.Generator, lengths: Tensor, longest: int) -> Tensor:
        content = torch.randint(self.distinct, (len(lengths), longest), generator=generator)
        if self.distinct < self.symbols:
            palettes = torch.rand(len(lengths), self.symbols, generator=generator).topk(self.distinct).indices
            content = palettes.gather(1, content)
        return content.masked_fill(torch.arange(longest) >= lengths.unsqueeze(1), self.symbols).unsqueeze(1)


class Copy(SymbolList):
    """Copy n symbols: `3 1 4 | 3 1 4 <end>`; see Kazemnejad et al. 2023 (arXiv:2305.19466) for both variants."""

    one_stream_each = True  # published numbers come from these batches

    def answer(self, content: Tensor, lengths: Tensor) -> Tensor:
        return content.squeeze(1)


class Reverse(SymbolList):
    """Write n symbols from the last to the first: `3 1 4 | 4 1 3 <end>`."""

    def answer(self, content: Tensor, lengths: Tensor) -> Tensor:
        return content.squeeze(1).flip(1)


class Sort(SymbolList):
    """Sort n symbols in ascending order, equal ones included: `3 1 3 | 1 3 3 <end>`."""

    def answer(self, content: Tensor, lengths: Tensor) -> Tensor:
        return content.squeeze(1).sort(dim=1).values  # the filler is larger than every symbol


class Maximum(SymbolList):
    """Name the largest of n symbols: `3 1 4 1 | 4`."""

    closed = False

    def answer(self, content: Tensor, lengths: Tensor) -> Tensor:
        symbols = content.squeeze(1)
        return symbols.masked_fill(symbols == self.symbols, -1).amax(1, keepdim=True)


class Parity(SymbolList):
    """Say whether the number of ones among n bits is odd: `1 0 1 1 | 1`.

    Settings as of a list of symbols, of which there are two.
    """

    closed = False

    def __init__(
        self,
        *,
        lengths: Sequence[int] = (6, 16),
        eval_lengths: Sequence[int | str] = (),
        batch_size: ranges.Count = 32,
        eval_batch_size: ranges.Count | None = None,
        as_source: bool = False,
    ) -> None:
        super().__init__(
            symbols=2,
            lengths=lengths,
            eval_lengths=eval_lengths,
            batch_size=batch_size,
            eval_batch_size=eval_batch_size,
            as_source=as_source,
        )

    def _remedy(self) -> str:
        return "let task.lengths and task.eval_lengths begin later"

    def answer(self, content: Tensor, lengths: Tensor) -> Tensor:
        return (content == 1).sum(2) % 2


class Count(QuestionTask):
    """Count one symbol among n: `c a c b # c | 2 <end>`.

    Every number from 0 to n is equally often the answer, in decimal digits; the other symbols are drawn from the rest.
    `symbols`: size of the alphabet; the other settings are those of a list of symbols.
    UsageError: a number out of range, or a length with too few different items to split.
    """

    remedy = "raise task.symbols, or let task.lengths and task.eval_lengths begin later"

    def __init__(self, *, symbols: ranges.Several = 4, lengths: Sequence[int] = (4, 16), **settings: Any) -> None:
        self.symbols = symbols
        names = [f"s{index}" for index in range(symbols)]
        self.tokens = (*names, "<pad>", "|", "<end>", "#", *"0123456789")
        self.separator_token, self.end_token, self._asked, self._zero = range(symbols + 1, symbols + 5)
        super().__init__(lengths=lengths, **settings)

    def width_at(self, length: int) -> int:
        return 1 + length  # what is asked for stands first

    def question_at(self, length: int) -> int:
        return length + 2

    def answer_at(self, length: int) -> int:
        return len(str(length))

    def draw(self, generator: torch.Generator, lengths: Tensor, longest: int) -> Tensor:
        rows, n = len(lengths), lengths.unsqueeze(1)
        asked = torch.randint(self.symbols, (rows, 1), generator=generator)
        others = (asked + torch.randint(1, self.symbols, (rows, longest), generator=generator)) % self.symbols
        number = (torch.rand(rows, 1, generator=generator) * (n + 1)).long()
        beyond = torch.arange(longest) >= n
        rank = torch.rand(rows, longest, generator=generator).masked_fill(beyond, 2.0).argsort(1).argsort(1)
        symbols = torch.where(rank < number, asked, others).masked_fill(beyond, self.symbols)
        return torch.cat([asked, symbols], dim=1).unsqueeze(1)

    def question(self, content: Tensor, lengths: Tensor) -> Tensor:
        asked, symbols = content[:, 0, :1], content[:, 0, 1:]
        return torch.cat([symbols, column(len(content), self._asked), asked], dim=1)

    def answer(self, content: Tensor, lengths: Tensor) -> Tensor:
        count = (content[:, 0, 1:] == content[:, 0, :1]).sum(1, keepdim=True)
        powers = 10 ** torch.arange(self.answer_at(content.shape[2] - 1) - 1, -1, -1)
        leading = (count < powers) & (powers > 1)
        return (self._zero + count // powers % 10).masked_fill(leading, self.symbols)
