"""What each place of a sequence is, and what a place that asks may know of a place that is asked."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, TypeVar

import torch
from torch import Tensor

if TYPE_CHECKING:
    from swapformer.model.cache import Cache
    from swapformer.model.pattern import Pattern
    from swapformer.model.position import Position

Value = TypeVar("Value")


@dataclass(frozen=True, eq=False)
class Tokens:
    """What each of T places is. Build it with `Tokens.of`.

    Attributes:
        order: true place in the sequence, int64 [B|1, T]; causality compares it.
        position: what encodings see, int64 [B|1, T]; may be offset, reset or randomised.
        extent: one more than the largest position, known without reading the tensor.
        document: index of the document that a place belongs to, int64 [B|1, T]; documents do not see each other.
        padding: True where a place is padding, bool [B|1, T]; padding is never seen.
        tags: named integer channels [B|1, T] that a task supplies.
        consecutive: whether `order` is 0 … T−1 in every row.
        bounds: no position is smaller or larger, known without reading the tensor; all of `extent` unless given.
    """

    order: Tensor
    position: Tensor
    extent: int
    document: Tensor | None = None
    padding: Tensor | None = None
    tags: Mapping[str, Tensor] = field(default_factory=dict)
    consecutive: bool = False
    bounds: tuple[int, int] = (0, -1)

    def __post_init__(self) -> None:
        if self.bounds == (0, -1):
            object.__setattr__(self, "bounds", (0, self.extent - 1))

    @classmethod
    def of(
        cls,
        length: int,
        *,
        start: int = 0,
        device: torch.device | str | None = None,
        position: Tensor | None = None,
        document: Tensor | None = None,
        padding: Tensor | None = None,
        tags: Mapping[str, Tensor] | None = None,
    ) -> Tokens:
        """`length` places in a row, the first at place `start`; positions are the places unless given."""
        order = torch.arange(start, start + length, device=device)[None]
        extent = start + length if position is None else int(position.max()) + 1
        return cls(
            order=order,
            position=order if position is None else position,
            extent=extent,
            document=document,
            padding=padding,
            tags={} if tags is None else tags,
            consecutive=start == 0,
            bounds=(start, extent - 1) if position is None else (0, extent - 1),
        )

    def __len__(self) -> int:
        return self.order.shape[-1]

    def at(self, places: slice | Tensor) -> Tokens:
        """Some of these places, by index: they keep what they are, true order and position included."""

        def cut(values: Tensor | None) -> Tensor | None:
            return None if values is None else values[:, places]

        return Tokens(
            order=self.order[:, places],
            position=self.position[:, places],
            extent=self.extent,
            document=cut(self.document),
            padding=cut(self.padding),
            tags=_TagsAt(self.tags, places),
            bounds=self._bounds_at(places),
        )

    def _bounds_at(self, places: slice | Tensor) -> tuple[int, int]:
        """Narrower for a slice of places that are encoded where they stand."""
        if isinstance(places, slice) and self.position is self.order and (run := range(len(self))[places]):
            return self.bounds[0] + min(run), self.bounds[0] + max(run)
        return self.bounds


class _TagsAt(Mapping[str, Tensor]):
    """The tags of some places, cut when they are read."""

    def __init__(self, tags: Mapping[str, Tensor], places: slice | Tensor) -> None:
        self._tags, self._places = tags, places

    def __getitem__(self, name: str) -> Tensor:
        return self._tags[name][:, self._places]

    def __iter__(self) -> Iterator[str]:
        return iter(self._tags)

    def __len__(self) -> int:
        return len(self._tags)


class Context:
    """Queries against keys: made once per forward and handed down; what parts derive from it is computed once.

    Args:
        query: the places that ask, Q of them.
        key: the places that are asked, K of them; the same object as `query` in self-attention without a cache.
        dtype: precision of the stream, in which encodings compute their terms.
        cache: where attention keeps what it will need of these places when others follow; None where none will.
        whole: the context that this one is a block of; None where it is no block.
    """

    def __init__(
        self,
        query: Tokens,
        key: Tokens,
        dtype: torch.dtype = torch.float32,
        cache: Cache | None = None,
        whole: Context | None = None,
    ) -> None:
        self.query = query
        self.key = key
        self.dtype = dtype
        self.cache = cache
        self.whole: Context = self if whole is None else whole
        self._memo: dict[object, object] = {}

    def once(self, key: object, compute: Callable[[], Value]) -> Value:
        """The value remembered under `key`, computed on first use. Identity of parts must be part of the key.

        What is the same for every block belongs to the `whole`.
        """
        if key not in self._memo:
            self._memo[key] = compute()
        return self._memo[key]  # type: ignore[return-value]

    @cached_property
    def distance(self) -> Tensor:
        """Key position minus query position, int64 [B|1, Q, K]: negative looks back."""
        return self.key.position[:, None, :] - self.query.position[:, :, None]

    @property
    def plain(self) -> bool:
        """Whether queries are the keys, in order, without padding or documents: only the pattern forbids anything."""
        return (
            self.query is self.key and self.key.consecutive and self.key.padding is None and self.key.document is None
        )

    @property
    def uniform(self) -> bool:
        """Whether places differ in nothing but where they stand, and are encoded where they stand."""
        return self.plain and self.key.position is self.key.order

    def at(self, queries: slice | Tensor, keys: slice | Tensor) -> Context:
        """A block of this context, by index: what parts derive from it is the same block of what they derive here."""
        return Context(self.query.at(queries), self.key.at(keys), self.dtype, whole=self.whole)

    def latest(self, keys: int) -> Context:
        """These queries against the last `keys` keys."""
        if keys == len(self.key):
            return self
        return self.once(("latest", keys), lambda: self.at(slice(None), slice(-keys, None)))

    @property
    def here(self) -> Context:
        """The places that ask against themselves, without those that were read before."""
        if self.query is self.key:
            return self
        return self.once("here", lambda: Context(self.query, self.query, self.dtype, self.cache))

    def mask(self, pattern: Pattern) -> Tensor | None:
        """True where a query may attend to a key, bool [B|1, H|1, Q, K]; None if everything is allowed."""
        return self.once(("mask", pattern), lambda: self._mask(pattern))

    def _mask(self, pattern: Pattern) -> Tensor | None:
        allowed = pattern.allowed(self.query, self.key)
        if self.key.padding is not None:
            seen = ~self.key.padding[:, None, None, :]
            allowed = seen if allowed is None else allowed & seen
        if self.key.document is not None and self.query.document is not None:
            same = (self.query.document[:, :, None] == self.key.document[:, None, :])[:, None]
            allowed = same if allowed is None else allowed & same
        return allowed

    def bias(self, position: Position) -> Tensor | None:
        """The content-free term of a position encoding, [B|1, H, Q, K]; None if it has none."""
        return self.once(("bias", position), lambda: position.bias(self))
