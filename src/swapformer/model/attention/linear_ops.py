"""Weighted means whose weights are products of features, in linear time: linear attention and performer."""

from __future__ import annotations

import torch
from torch import Tensor

from swapformer.model.context import Context
from swapformer.model.ops import chunks, cumulative_sum
from swapformer.model.pattern import Pattern

_CHUNK = 64
"""Positions of a chunk, within which pairs are formed; a sum [E, E] is stored for each chunk."""

Pair = tuple[Tensor, Tensor]
"""Features of queries and of keys, [B, H, Q, M] and [B, H, K, M]."""


def without_padding(k: Tensor, context: Context) -> Tensor:
    """The features of keys [B, H, K, M], zero where a key is padding."""
    return k if context.key.padding is None else k.masked_fill(context.key.padding[:, None, :, None], 0.0)


def weighted_mean(
    features: Pair, rotated: Pair, v: Tensor, context: Context, pattern: Pattern, key: object = None
) -> Tensor:
    """Σ_j (t_i·u_j) v_j / Σ_j q_i·k_j over the allowed j, for (q, k) = features and (t, u) = rotated, [B, H, T, M].

    The pattern is full or plainly causal. A query that sees nothing gets zero. A cache of the context holds the two
    sums over earlier keys, under `key`, and the features are those of the new tokens.

    Raises:
        ValueError: for documents with a cache, whose sums are over all of them.
    """
    if context.cache is not None and pattern.plain_causal and context.key.document is not None:
        raise ValueError("an attention in linear time caches sums over all keys, not by document; leave out the cache")
    ones = torch.ones_like(v[..., :1])
    if context.cache is not None and _sums_are_cached(context, pattern):
        before = context.cache.get(key) or (None, None)
        (total, sum_v), (count, sum_1) = _continued(*rotated, v, before[0]), _continued(*features, ones, before[1])
        context.cache.put(key, sum_v, sum_1)
    elif context.query is not context.key or context.key.document is not None:
        mask = context.mask(pattern)
        total, count = _masked(*rotated, v, mask), _masked(*features, ones, mask)
    elif pattern.plain_causal:
        total, count = _causal(*rotated, v), _causal(*features, ones)
    else:
        total, count = _all(*rotated, v), _all(*features, ones)
    return total / count.masked_fill(count == 0, 1.0)


def implied_weights(features: Pair, rotated: Pair, context: Context, pattern: Pattern) -> Tensor:
    """(t_i·u_j) / Σ_j q_i·k_j for the allowed j, else 0, [B, H, Q, K]: what `weighted_mean` multiplies values with.

    Raises:
        ValueError: if a cache holds sums over earlier keys in their place.
    """
    if _sums_are_cached(context, pattern):
        raise ValueError(
            "hook_pattern of an attention in linear time needs all keys, but a cache holds only their sum; generate "
            "with cache=False to watch it"
        )
    mask = context.mask(pattern)
    products, counted = (
        (q @ k.mT if mask is None else (q @ k.mT).masked_fill(~mask, 0.0)) for q, k in (rotated, features)
    )
    count = counted.sum(-1, keepdim=True)
    return products / count.masked_fill(count == 0, 1.0)


def _sums_are_cached(context: Context, pattern: Pattern) -> bool:
    return context.cache is not None and pattern.plain_causal and context.key.document is None


def _outer_sum(k: Tensor, v: Tensor) -> Tensor:
    """Σ_j k_j v_jᵀ, [B, H, M, E]."""
    return k.mT @ v.to(k.dtype)


def _all(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Σ_j (q_i·k_j) v_j over all j, the sum over j first."""
    return q @ _outer_sum(k, v)


def _masked(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
    """Σ_j (q_i·k_j) v_j over the allowed j, by its definition."""
    products = q @ k.mT
    return (products if mask is None else products.masked_fill(~mask, 0.0)) @ v.to(q.dtype)


def _causal(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Σ_{j≤i} (q_i·k_j) v_j: pairs within a chunk, and the sum of all chunks before."""
    length = q.shape[-2]
    q, k, v = (chunks(x.to(q.dtype), _CHUNK) for x in (q, k, v))
    sums = cumulative_sum(k.mT @ v, dim=2)
    before = torch.cat([torch.zeros_like(sums[:, :, :1]), sums[:, :, :-1]], dim=2)
    return ((q @ k.mT).tril() @ v + q @ before).flatten(2, 3)[:, :, :length]


def _continued(q: Tensor, k: Tensor, v: Tensor, before: Tensor | None) -> tuple[Tensor, Tensor]:
    """Σ_{j≤i} (q_i·k_j) v_j over these keys and earlier ones, whose Σ_j k_j v_jᵀ is `before`, and the sum of both."""
    if before is None:
        return _causal(q, k, v), _outer_sum(k, v)
    after = before + _outer_sum(k, v)
    if q.shape[-2] == 1:  # a single new token sees all of it: no chunk need be filled
        return q @ after, after
    return _causal(q, k, v) + q @ before, after
