"""Queries against keys: which keys a query may attend to, and how far they are from each other."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import TypeVar

import torch
from torch import Tensor

from swapformer.model.cache import Cache
from swapformer.model.pattern.base import Pattern
from swapformer.model.tokens import Tokens

Value = TypeVar("Value")


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
