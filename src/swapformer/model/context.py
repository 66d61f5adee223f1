"""Queries against keys: which keys a query may attend to, and how far they are from each other."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import TypeVar

import torch
from torch import Tensor

from swapformer.model.cache import Cache
from swapformer.model.pattern.base import Pattern
from swapformer.model.tokens import Tokens

Value = TypeVar("Value")


class Context:
    """The query tokens and key tokens of a forward, with masks and biases that are computed once for all layers.

    Args:
        query: the Q tokens that attend.
        key: the K tokens that are attended to; the same object as `query` in self-attention without a cache.
        dtype: precision of the stream, in which encodings compute their terms.
        cache: where attention stores what later tokens will need of these; None if no tokens follow.
        whole: the context that this one is a block of; None if it is no block.
    """

    def __init__(
        self,
        query: Tokens,
        key: Tokens,
        dtype: torch.dtype = torch.float32,
        cache: Cache | None = None,
        whole: Context | None = None,
    ) -> None:
        self.query, self.key, self.dtype, self.cache = query, key, dtype, cache
        self._whole = None if whole is None else weakref.ref(whole)
        self._memo: dict[object, object] = {}

    @property
    def whole(self) -> Context:
        """The context that this one is a block of, or itself.

        A block knows it weakly, since the whole may remember the block: a circle would keep masks, biases and their
        graph alive until the collector runs.
        """
        if self._whole is None:
            return self
        whole = self._whole()
        assert whole is not None, "the whole context outlives its blocks"
        return whole

    def once(self, key: object, compute: Callable[[], Value]) -> Value:
        """The value remembered under `key`, computed on first use. Identity of parts must be part of the key.

        A value that is the same for every block belongs to the `whole`.
        """
        if key not in self._memo:
            self._memo[key] = compute()
        return self._memo[key]  # type: ignore[return-value]

    @property
    def distance(self) -> Tensor:
        """Key position minus query position, int64 [B|1, Q, K]: negative looks back."""
        return self.once("distance", lambda: self.key.position[:, None, :] - self.query.position[:, :, None])

    @property
    def plain(self) -> bool:
        """Whether queries are the keys, in order, without padding or documents: only the pattern forbids anything."""
        return (
            self.query is self.key and self.key.consecutive and self.key.padding is None and self.key.document is None
        )

    @property
    def uniform(self) -> bool:
        """Whether tokens differ only in their positions, and encodings see the true ones."""
        return self.plain and self.in_order

    @property
    def in_order(self) -> bool:
        """Whether queries are the keys, in order, and encodings see their true positions."""
        return self.query is self.key and self.key.consecutive and self.key.position is self.key.order

    @property
    def distances(self) -> Context:
        """One query, the last of K tokens, and keys from K − 1 before it to K − 1 after: every distance once."""
        return self.once("distances", self._distances)

    def _distances(self) -> Context:
        length, device = len(self.key), self.key.order.device
        keys = Tokens.of(2 * length - 1, device=device)
        return Context(Tokens.of(1, start=length - 1, device=device), keys, self.dtype)

    def masks_by_distance(self, pattern: Pattern) -> bool:
        """Whether the mask of a pattern, with padding and documents, depends only on the distance of a pair."""
        return self.uniform and not pattern.anchored and not pattern.tags

    def at(self, queries: slice | Tensor, keys: slice | Tensor) -> Context:
        """A block of this context, by index; a mask or bias of the block is that block of the whole mask or bias."""
        return Context(self.query.at(queries), self.key.at(keys), self.dtype, whole=self.whole)

    def latest(self, keys: int) -> Context:
        """These queries against the last `keys` keys."""
        if keys == len(self.key):
            return self
        return self.once(("latest", keys), lambda: self.at(slice(None), slice(-keys, None)))

    @property
    def among_queries(self) -> Context:
        """The queries against themselves, without the tokens that a cache holds."""
        if self.query is self.key:
            return self
        return self.once("among queries", lambda: Context(self.query, self.query, self.dtype, self.cache))

    def mask(self, pattern: Pattern) -> Tensor | None:
        """True where a query may attend to a key, bool [B|1, H|1, Q, K]; None if everything is allowed."""
        return self.once(("mask", pattern), lambda: self._mask(pattern))

    def _mask(self, pattern: Pattern) -> Tensor | None:
        allowed = pattern.allowed(self.query, self.key)
        if self.key.padding is not None:
            tokens = ~self.key.padding[:, None, None, :]
            allowed = tokens if allowed is None else allowed & tokens
        if self.key.document is not None and self.query.document is not None:
            same = (self.query.document[:, :, None] == self.key.document[:, None, :])[:, None]
            allowed = same if allowed is None else allowed & same
        return allowed
