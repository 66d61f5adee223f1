"""Pairs of segments (Devlin et al. 2018, arXiv:1810.04805): where they are from, and how they are cut to their room."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


class Pairs(NamedTuple):
    """Places [B] of a split: first segments are `length` tokens up to `end`, second ones `more` tokens from `start`."""

    end: Tensor
    length: Tensor
    start: Tensor
    more: Tensor


class Segments:
    """What pairs are drawn from: documents that begin at `begins` [d+1], at the last of which the text ends."""

    def __init__(self, begins: NDArray[np.int64]) -> None:
        self.begins = begins
        self.inner = begins - np.arange(len(begins))
        """How many places before each document do not begin one: those where a second segment may begin."""

    def draw(self, room: int, follows: Tensor, generator: torch.Generator) -> Pairs:
        """Pairs that fit in `room` places."""
        begins, inner = self.begins, self.inner
        rows = len(follows)
        number = _below(np.full(rows, inner[-1]), generator)
        document = np.searchsorted(inner, number, side="right") - 1
        end = begins[document] + 1 + number - inner[document]
        # All inner places but those of the document itself; beyond it they are as many further.
        own = inner[document + 1] - inner[document]
        other = _below(inner[-1] - own, generator)
        other += np.where(other >= inner[document], own, 0)
        elsewhere = np.searchsorted(inner, other, side="right") - 1
        start = np.where(follows.numpy(), end, begins[elsewhere] + 1 + other - inner[elsewhere])
        last = begins[np.where(follows.numpy(), document, elsewhere) + 1]
        wanted = torch.randint(1, room + 1, (2, rows), generator=generator).numpy()
        length, more = truncated(
            np.minimum(end - begins[document], wanted[0]), np.minimum(last - start, wanted[1]), room
        )
        return Pairs(*(torch.from_numpy(part) for part in (end, length, start, more)))


def truncated(first: NDArray[np.int64], second: NDArray[np.int64], room: int) -> tuple[NDArray[np.int64], ...]:
    """Lengths of pairs after the longer of each, the second where they are equal, has lost tokens until both fit."""
    excess = np.maximum(first + second - room, 0)
    alone = np.minimum(excess, np.abs(first - second))
    both = excess - alone
    return first - np.where(first > second, alone, 0) - both // 2, second - np.where(first > second, 0, alone) - -(
        -both // 2
    )


def _below(limits: NDArray[np.int64], generator: torch.Generator) -> NDArray[np.int64]:
    """A random whole number below each limit."""
    drawn = torch.rand(len(limits), generator=generator, dtype=torch.float64).numpy()
    return np.minimum((drawn * limits).astype(np.int64), limits - 1)
