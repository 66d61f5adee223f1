"""Patterns made of other patterns: all of them, any of them, or another one for each group of heads."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import reduce
from operator import and_, or_

import torch
from torch import Tensor

from swapformer.model.dims import Dims
from swapformer.model.pattern.base import Pattern
from swapformer.model.tokens import Tokens

Patterns = Mapping[str, Callable[[Dims], Pattern]]


def _build(patterns: Patterns, dims: Dims) -> list[Pattern]:
    if not patterns:
        raise ValueError("a combined pattern must have at least one entry in `patterns`, but it has none.")
    return [make(dims) for make in patterns.values()]


class AllOf(Pattern):
    """The pairs that all of several patterns allow; causal if one of them is.

    Args:
        patterns: a factory by name; the names are only for overrides.

    Raises:
        ValueError: if none is given.
    """

    def __init__(self, dims: Dims, *, patterns: Patterns) -> None:
        self.whole = reduce(and_, _build(patterns, dims))
        self.causal, self.plain_causal = self.whole.causal, self.whole.plain_causal
        self.anchored, self.depends_on_length = self.whole.anchored, self.whole.depends_on_length
        self.tags, self.reach = self.whole.tags, self.whole.reach

    def allowed(self, query: Tokens, key: Tokens) -> Tensor | None:
        return self.whole.allowed(query, key)


class AnyOf(Pattern):
    """The pairs that at least one of several patterns allows; causal if all of them are.

    Args:
        patterns: a factory by name; the names are only for overrides.

    Raises:
        ValueError: if none is given.
    """

    def __init__(self, dims: Dims, *, patterns: Patterns) -> None:
        self.whole = reduce(or_, _build(patterns, dims))
        self.causal, self.plain_causal = self.whole.causal, self.whole.plain_causal
        self.anchored, self.depends_on_length = self.whole.anchored, self.whole.depends_on_length
        self.tags, self.reach = self.whole.tags, self.whole.reach

    def allowed(self, query: Tokens, key: Tokens) -> Tensor | None:
        return self.whole.allowed(query, key)


class PerHead(Pattern):
    """Another pattern for each group of heads: of P patterns and H heads, head h has pattern ⌊h·P/H⌋.

    As in the head-wise factorisation of Child et al. 2019 (arXiv:1904.10509, section 4.3), or a scale for each head.

    Args:
        patterns: a factory by name, in the order of the heads.

    Raises:
        ValueError: if none is given, or their number does not divide the number of heads.
    """

    def __init__(self, dims: Dims, *, patterns: Patterns) -> None:
        self.patterns = _build(patterns, dims)
        if dims.num_heads % len(self.patterns):
            raise ValueError(
                f"the number of `patterns` must divide `num_heads`, but {len(self.patterns)} ({', '.join(patterns)}) "
                f"does not divide {dims.num_heads}; name one pattern twice, or change the number of heads."
            )
        self.repeats = dims.num_heads // len(self.patterns)
        self.causal = all(pattern.causal for pattern in self.patterns)
        self.anchored = any(pattern.anchored for pattern in self.patterns)
        self.depends_on_length = any(pattern.depends_on_length for pattern in self.patterns)
        self.reach = reduce(or_, (pattern.reach for pattern in self.patterns))
        self.tags = tuple(dict.fromkeys(tag for pattern in self.patterns for tag in pattern.tags))

    def allowed(self, query: Tokens, key: Tokens) -> Tensor:
        everything = torch.ones(1, 1, len(query), len(key), dtype=torch.bool, device=query.order.device)
        parts = [pattern.allowed(query, key) for pattern in self.patterns]
        masks = [everything if part is None else part for part in parts]
        assert all(mask.shape[1] == 1 for mask in masks), "the patterns of PerHead must be the same for all heads"
        rows = max(mask.shape[0] for mask in masks)
        return torch.cat([mask.expand(rows, self.repeats, -1, -1) for mask in masks], dim=1)
