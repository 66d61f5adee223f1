"""Synthetic items as sequences of tokens, and as batches that are made several at a time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from swapformer.task.base import Batch, Sequences


@dataclass(frozen=True, eq=False)
class ItemLayout:
    """Items as sequences of tokens: N rows of L.

    `tokens` [N,L] int64; the filler marks gaps, which are closed. `scored` [N,L] bool: tokens that are determined by
    those before them, and so are answered for. `tags`: channels [N,L] of the tokens. `inputs` [N]: how many tokens are
    inputs (None: all but the last, which is a target only). All that tells items apart must be among inputs and
    targets: items that differ in what no model sees could be in several splits.
    """

    tokens: Tensor
    scored: Tensor
    tags: Mapping[str, Tensor] = field(default_factory=dict)
    inputs: Tensor | None = None


def close_gaps(kept: Tensor, values: Tensor, filler: int) -> Tensor:
    """The values [N,L] of each row that are kept, moved to its start, with `filler` behind them."""
    width = kept.shape[1]
    position = torch.where(kept, kept.cumsum(1) - 1, width)
    return values.new_full((len(values), width + 1), filler).scatter_(1, position, values)[:, :width]


def column(rows: int, token: int) -> Tensor:
    """The same token for every row [N,1]."""
    return torch.full((rows, 1), token)


def append_filler(values: Tensor, filler: int) -> Tensor:
    """The values [N,L] with a column of filler behind them, for items whose last token is an input too."""
    return pad(values, (0, 1), value=filler)


def padding_or_none(padding: Tensor) -> Tensor | None:
    """`padding` where there is any."""
    return padding if bool(padding.any()) else None


def permutations(generator: torch.Generator, rows: int, symbols: int, count: int) -> Tensor:
    """`count` different symbols in random order for each row [rows,count]."""
    return torch.rand(rows, symbols, generator=generator).topk(count, dim=1).indices


def some_words(generator: torch.Generator, shape: tuple[int, int], words: int, most: int, filler: int) -> Tensor:
    """0 … most meaningless words [*shape,most], all numbers equally often, with filler behind them."""
    count = torch.randint(most + 1, (*shape, 1), generator=generator)
    return torch.randint(words, (*shape, most), generator=generator).masked_fill(torch.arange(most) >= count, filler)


class BatchBlocks:
    """Makes training batches of `size` rows, `ahead` of them at once: many small tensors take as long as one large one.

    `make`: (seed, number of a block) → its batches as one, a pure function.
    """

    def __init__(self, make: Callable[[int, int], Batch], size: int, ahead: int) -> None:
        self.make, self.size, self.ahead = make, size, ahead
        self._kept: tuple[tuple[int, int], Batch] | None = None

    def batch(self, seed: int, step: int) -> Batch:
        """Batch number `step`, which is the caller's own."""
        block, offset = divmod(step, self.ahead)
        if self._kept is None or self._kept[0] != (seed, block):
            self._kept = (seed, block), self.make(seed, block)
        batch: Batch = _rows_between(self._kept[1], offset * self.size, (offset + 1) * self.size)
        return batch


def _rows_between(value: Any, low: int, high: int) -> Any:
    """Rows `low` … `high` of a batch, of a source or of a tensor, as copies."""
    if isinstance(value, Tensor):
        return value[low:high].clone()
    if isinstance(value, Mapping):
        return {name: _rows_between(channel, low, high) for name, channel in value.items()}
    if isinstance(value, Sequences):
        cut = {one.name: _rows_between(getattr(value, one.name), low, high) for one in fields(value)}
        padding = cut.pop("padding")
        return replace(value, **cut, padding=None if padding is None else padding_or_none(padding))
    return value
