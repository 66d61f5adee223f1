"""How a sequence is cut into blocks along a pattern's reach."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from swapformer.model.pattern import Reach

LEAST, MOST = 32, 128
"""Queries of a block: a quarter of the band within these bounds, which was fastest or nearly so on a CPU."""


@dataclass(frozen=True)
class Block:
    """Some places that ask, and all that they may see.

    Attributes:
        queries: places, as far from each other as the reach's step.
        keys: places within reach, likewise: all queries of blocks `first` to `last`.
        first, last: blocks, counted from 0.
        far: landmarks that are not among `keys`.
    """

    queries: range
    keys: range
    first: int
    last: int
    far: tuple[int, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """What blocks have in common that differ in nothing but where they stand."""
        return len(self.queries), len(self.keys), self.keys.start - self.queries.start, self.queries.step


def cut(reach: Reach, length: int) -> list[Block]:
    """The blocks of `length` places, which have each of them once as a query: those of one remainder by step first."""
    before, after = (int(min(side, length)) // reach.step for side in (reach.before, reach.after))
    size = min(max((before + after + 1) // 4, LEAST), MOST)
    blocks: list[Block] = []
    for remainder in range(min(reach.step, length)):
        lane, base = range(remainder, length, reach.step), len(blocks)
        runs = -(-len(lane) // size)
        for index in range(runs):
            first, last = max(index - -(-before // size), 0), min(index + -(-after // size), runs - 1)
            keys = lane[first * size : (last + 1) * size]
            far = tuple(place for place in reach.landmarks if place < length and place not in keys)
            blocks.append(Block(lane[index * size : (index + 1) * size], keys, base + first, base + last, far))
    return blocks


class Pieces:
    """A tensor [B, H, T, E] cut once, for the gradient of a slice would be as long as the whole for every block.

    Args:
        x: the tensor.
        blocks: where it is cut.
        landmarks: places that blocks far from them need too.
    """

    def __init__(self, x: Tensor, blocks: list[Block], landmarks: list[int]) -> None:
        order = in_turn(blocks, x.device)
        by_lane = x if order is None else x.index_select(2, order)
        self.runs = torch.split(by_lane, [len(block.queries) for block in blocks], dim=2)
        self.landmarks = {place: x[:, :, [place]] for place in landmarks}

    def seen(self, block: Block) -> Tensor:
        """The rows of a block's keys and of its far landmarks."""
        return torch.cat(
            [*self.runs[block.first : block.last + 1], *(self.landmarks[place] for place in block.far)], dim=2
        )


def in_turn(blocks: list[Block], device: torch.device) -> Tensor | None:
    """The places in the order in which the blocks ask, int64 [T]; None where that is their own."""
    if blocks[0].queries.step == 1:
        return None
    return torch.tensor([place for block in blocks for place in block.queries], device=device)


def index(places: range, far: tuple[int, ...], device: torch.device) -> slice | Tensor:
    """What picks a block's places out of Tokens: a slice where it can be one."""
    if far:
        return torch.tensor([*places, *far], device=device)
    return slice(places.start, places.stop, places.step)
