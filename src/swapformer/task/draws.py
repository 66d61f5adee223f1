"""What several synthetic tasks draw: different symbols in random order, and a few words that mean nothing."""

from __future__ import annotations

import torch
from torch import Tensor


def permutations(generator: torch.Generator, rows: int, symbols: int, count: int) -> Tensor:
    """`count` different symbols in random order for each row [rows,count]."""
    return torch.rand(rows, symbols, generator=generator).topk(count, dim=1).indices


def some_words(generator: torch.Generator, shape: tuple[int, int], words: int, most: int, filler: int) -> Tensor:
    """0 … most meaningless words [*shape,most], all numbers equally often, with filler behind them."""
    count = torch.randint(most + 1, (*shape, 1), generator=generator)
    return torch.randint(words, (*shape, most), generator=generator).masked_fill(torch.arange(most) >= count, filler)
