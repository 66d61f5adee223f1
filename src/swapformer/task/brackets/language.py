"""Nested brackets of several kinds."""

from __future__ import annotations

import torch
from torch import Tensor


def names(kinds: int) -> list[str]:
    """How the opening brackets of all kinds are written, and then the closing ones."""
    more = range(4, kinds)
    opening, closing = [*"([{<", *(f"({kind}" for kind in more)], [*")]}>", *(f"){kind}" for kind in more)]
    return opening[:kinds] + closing[:kinds]


def walk(generator: torch.Generator, rows: int, width: int, kinds: int, depth: int, opening: float) -> Tensor:
    """Beginnings [rows,width] of nested brackets: kind to open one, kinds + kind to close one.

    One is opened with probability `opening` wherever one can be opened and closed.
    """
    wish = torch.rand(rows, width, generator=generator) < opening
    kind = torch.randint(kinds, (rows, width), generator=generator)
    stack = torch.zeros(rows, depth, dtype=torch.long)
    level = torch.zeros(rows, dtype=torch.long)
    tokens = []
    for place in range(width):
        opens = (level == 0) | (wish[:, place] & (level < depth))
        level = torch.where(opens, level, level - 1)
        top = level.unsqueeze(1)
        inner = torch.where(opens, kind[:, place], stack.gather(1, top).squeeze(1))
        stack.scatter_(1, top, inner.unsqueeze(1))
        tokens.append(torch.where(opens, inner, inner + kinds))
        level = level + opens.long()
    return torch.stack(tokens, dim=1)


def levels(tokens: Tensor, kinds: int) -> Tensor:
    """How many brackets are open after each token [N,L]; filler (2 · kinds) changes nothing."""
    return ((tokens < kinds).long() - ((tokens >= kinds) & (tokens < 2 * kinds)).long()).cumsum(1)
