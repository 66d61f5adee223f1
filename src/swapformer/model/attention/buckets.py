"""Buckets of a random hash, sorted and cut into chunks: the index that Reformer attention is computed on."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from swapformer.model.tokens import Tokens

_PADDING = -(2**30)
"""The chunk number of what fills up the last chunk, which no position sees."""


def hashes(x_BHTE: Tensor, rotations_HREN: Tensor) -> Tensor:
    """The bucket of each vector in every round, int64 [B, H, R, T]: argmax(xW, −xW) (Andoni et al. 2015).

    N directions make 2N buckets.
    """
    turned = torch.einsum("bhte,hren->bhrtn", x_BHTE, rotations_HREN.to(x_BHTE.dtype))
    return torch.cat([turned, -turned], dim=-1).argmax(-1)


@dataclass(frozen=True)
class ChunkIndex:
    """The chunk of each position of a row, in every round.

    Positions of one bucket (and one document; padding separately) are sorted by their order and cut into chunks,
    counted from the bucket's first position: so no later token changes the chunk of an earlier one.

    Attributes:
        index: the positions in sorted order, int64 [B, H, R, T].
        chunk: the number of each position's chunk, int32 [B, H, R, T]; a bucket's next chunk has the next number, and
            between two buckets one number is left out.
    """

    index: Tensor
    chunk: Tensor

    @classmethod
    def of(cls, buckets: Tensor, tokens: Tokens, size: int) -> ChunkIndex:
        """The index of positions with these buckets [B, H, R, T], in chunks of `size`."""
        channels = (tokens.document, None if tokens.padding is None else tokens.padding.long())
        keys = [buckets, *(x[:, None, None].expand_as(buckets) for x in channels if x is not None)]
        index = tokens.order[:, None, None].expand_as(buckets).argsort(dim=-1)
        for key in keys:  # the last one counts most
            index = index.gather(-1, key.gather(-1, index).argsort(dim=-1, stable=True))
        ordered = torch.stack([key.gather(-1, index) for key in keys])
        first = functional.pad((ordered[..., 1:] != ordered[..., :-1]).any(0).long(), (1, 0), value=1)
        slot = torch.ones_like(first).cumsum(-1) - 1
        rank = slot - (slot * first).cummax(-1).values
        chunk = (first + (rank % size == 0)).cumsum(-1)
        return cls(index, torch.zeros_like(chunk).scatter(-1, index, chunk).int())

    def visible(self, last: int) -> Tensor:
        """True where one of the `last` positions sees another in some round, bool [B, H, last, T]."""
        return sees(self.chunk[..., -last:, None], self.chunk[..., None, :]).any(2)


def sees(chunk: Tensor, other: Tensor) -> Tensor:
    """Whether a position in one chunk sees those in the other: the same chunk of a bucket, or the one before."""
    return (chunk == other) | (chunk == other + 1)


class Chunks:
    """Tensors of one round in sorted order: N chunks of C positions, and the W positions that each chunk may see.

    A bucket's chunk and the one before lie within the last three chunks of the row, and within the next one where
    positions see later ones.

    Args:
        index: the chunk of each position.
        number: which round.
        size: C.
        ahead: whether positions see later ones.
    """

    def __init__(self, index: ChunkIndex, number: int, size: int, *, ahead: bool) -> None:
        self._chunk, self._number = index.chunk, number
        self._index = index.index[:, :, number]
        self._length = self._index.shape[-1]
        self._size = min(size, self._length)
        count = -(-self._length // self._size)
        self._before, self._after = min(2, count - 1), min(1, count - 1) if ahead else 0

    def own(self, x: Tensor, fill: float = 0) -> Tensor:
        """x [B, H, T, …] → [B, H, N, C, …]."""
        index = self._index.view(*self._index.shape, *[1] * (x.ndim - 3)).expand(*self._index.shape, *x.shape[3:])
        missing = -self._length % self._size
        padded = functional.pad(x.gather(2, index), (0, 0) * (x.ndim - 3) + (0, missing), value=fill)
        return padded.view(*padded.shape[:2], -1, self._size, *padded.shape[3:])

    def around(self, x: Tensor, fill: float = 0) -> Tensor:
        """x [B, H, T, …] → [B, H, N, W, …], the W positions that each chunk may see."""
        own = self.own(x, fill)
        padded = functional.pad(own, (0, 0) * (own.ndim - 3) + (self._before, self._after), value=fill)
        count = own.shape[2]
        return torch.cat([padded[:, :, i : i + count] for i in range(self._before + 1 + self._after)], dim=3)

    def pairs(self, x: Tensor, fill: int) -> tuple[Tensor, Tensor]:
        """x [B, H, T] of queries [B, H, N, C, 1] and of the keys that they may see [B, H, N, 1, W], to be compared."""
        return self.own(x, fill)[..., :, None], self.around(x, fill)[..., None, :]

    def seen(self) -> Tensor:
        """True where a position sees another in this round and in none before, bool [B, H, N, C, W]."""
        seen = sees(*self.pairs(self._chunk[:, :, self._number], _PADDING))
        for earlier in range(self._number):
            seen = seen & ~sees(*self.pairs(self._chunk[:, :, earlier], _PADDING))
        return seen

    def itself(self) -> Tensor:
        """True where a position sees itself, bool [B, H, N, C, W]."""
        position = torch.ones_like(self._index).cumsum(-1) - 1
        own, around = self.pairs(position, -1)
        return own == around

    def restore(self, x: Tensor) -> Tensor:
        """[B, H, N, C, …] → [B, H, T, …], the inverse of `own`."""
        x = x.flatten(2, 3)[:, :, : self._length]
        index = self._index.view(*self._index.shape, *[1] * (x.ndim - 3)).expand_as(x)
        return torch.zeros_like(x).scatter(2, index, x)
