"""Rows sorted by the buckets of a hash and cut into chunks: what attention by hashing is computed on."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from swapformer.model.tokens import Tokens

_NOWHERE = -(2**30)
"""The cell of what fills up the last chunk, which no place sees."""


def hashes(x_BHTE: Tensor, rotations_HREN: Tensor) -> Tensor:
    """The bucket of each vector in every round, int64 [B, H, R, T]: argmax(xW, −xW) (Andoni et al. 2015).

    N directions make 2N buckets.
    """
    turned = torch.einsum("bhte,hren->bhrtn", x_BHTE, rotations_HREN.to(x_BHTE.dtype))
    return torch.cat([turned, -turned], dim=-1).argmax(-1)


@dataclass(frozen=True)
class Cells:
    """Where each place of a row stands in every round.

    Places of one bucket (of one document, padding apart) stand together, in their order, and are cut into chunks,
    counted from the bucket's first place: so no later place changes where an earlier one stands.

    Attributes:
        index: the places in sorted order, int64 [B, H, R, T].
        cell: the number of each place's chunk, int32 [B, H, R, T]; a bucket's next chunk has the next number, and
            between two buckets one number is left out.
    """

    index: Tensor
    cell: Tensor

    @classmethod
    def of(cls, buckets: Tensor, tokens: Tokens, chunk: int) -> Cells:
        """The cells of places with these buckets [B, H, R, T], `chunk` places each."""
        channels = (tokens.document, None if tokens.padding is None else tokens.padding.long())
        apart = [buckets, *(x[:, None, None].expand_as(buckets) for x in channels if x is not None)]
        index = tokens.order[:, None, None].expand_as(buckets).argsort(dim=-1)
        for key in apart:  # the last one counts most
            index = index.gather(-1, key.gather(-1, index).argsort(dim=-1, stable=True))
        ordered = torch.stack([key.gather(-1, index) for key in apart])
        first = functional.pad((ordered[..., 1:] != ordered[..., :-1]).any(0).long(), (1, 0), value=1)
        slot = torch.ones_like(first).cumsum(-1) - 1
        rank = slot - (slot * first).cummax(-1).values
        cell = (first + (rank % chunk == 0)).cumsum(-1)
        return cls(index, torch.zeros_like(cell).scatter(-1, index, cell).int())

    def sight(self, last: int) -> Tensor:
        """True where one of the `last` places sees another in some round, bool [B, H, last, T]."""
        return sees(self.cell[..., -last:, None], self.cell[..., None, :]).any(2)


def sees(cell: Tensor, other: Tensor) -> Tensor:
    """Whether a place in one cell sees those in the other: the same chunk of a bucket, or the one before."""
    return (cell == other) | (cell == other + 1)


class Chunks:
    """The places of one round in sorted order, in N chunks of C, and what the places of each may have to look at.

    A bucket's chunk and the one before lie within the last three chunks of the row, and within the next one where
    places see later ones.

    Args:
        cells: where the places stand.
        number: which round.
        size: C.
        ahead: whether places see later ones.
    """

    def __init__(self, cells: Cells, number: int, size: int, *, ahead: bool) -> None:
        self._cells, self._number = cells, number
        self._index = cells.index[:, :, number]
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
        """x [B, H, T, …] → [B, H, N, W, …], W places of the chunks that each chunk may have to look at."""
        own = self.own(x, fill)
        padded = functional.pad(own, (0, 0) * (own.ndim - 3) + (self._before, self._after), value=fill)
        count = own.shape[2]
        return torch.cat([padded[:, :, i : i + count] for i in range(self._before + 1 + self._after)], dim=3)

    def pairs(self, x: Tensor, fill: int) -> tuple[Tensor, Tensor]:
        """What x [B, H, T] says of the places that ask and of those they look at, to be compared."""
        return self.own(x, fill)[..., :, None], self.around(x, fill)[..., None, :]

    def seen(self) -> Tensor:
        """True where a place sees another in this round and in none before, bool [B, H, N, C, W]."""
        cell = self._cells.cell
        seen = sees(*self.pairs(cell[:, :, self._number], _NOWHERE))
        for earlier in range(self._number):
            seen = seen & ~sees(*self.pairs(cell[:, :, earlier], _NOWHERE))
        return seen

    def itself(self) -> Tensor:
        """True where a place looks at itself, bool [B, H, N, C, W]."""
        place = torch.ones_like(self._index).cumsum(-1) - 1
        own, around = self.pairs(place, -1)
        return own == around

    def restore(self, x: Tensor) -> Tensor:
        """[B, H, N, C, …] → [B, H, T, …], the inverse of `own`."""
        x = x.flatten(2, 3)[:, :, : self._length]
        index = self._index.view(*self._index.shape, *[1] * (x.ndim - 3)).expand_as(x)
        return torch.zeros_like(x).scatter(2, index, x)
