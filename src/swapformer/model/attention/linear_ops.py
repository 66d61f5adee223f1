"""Weighted means whose weights are products of features: what attentions share that never form scores."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor
from torch.nn import functional

from swapformer.model.context import Context
from swapformer.model.pattern import Pattern
from swapformer.model.position import Position

_CHUNK = 64
"""Places that are matched pair by pair before their sum is carried on; a sum [E, E] is kept for each chunk."""


Pair = tuple[Tensor, Tensor]
"""What belongs to queries and what to keys, [B, H, Q, M] and [B, H, K, M]."""


def wide(x: Tensor) -> Tensor:
    """x in float32 or wider, for long sums lose much in fewer digits."""
    return x if x.element_size() >= 4 else x.float()


def in_full_precision(device: torch.device) -> AbstractContextManager[object]:
    """Switch autocast off, where the device has it."""
    if not torch.amp.is_autocast_available(device.type):
        return nullcontext()
    return torch.autocast(device.type, enabled=False)


def without_padding(k: Tensor, context: Context) -> Tensor:
    """The features of keys [B, H, K, M], zero where a key is padding."""
    return k if context.key.padding is None else k.masked_fill(context.key.padding[:, None, :, None], 0.0)


def weighted_mean(
    features: Pair, turned: Pair, v: Tensor, context: Context, pattern: Pattern, key: object = None
) -> Tensor:
    """Σ_j (t_i·u_j) v_j / Σ_j q_i·k_j over the allowed j, for (q, k) = features and (t, u) = turned, [B, H, T, M].

    The pattern is full or plainly causal. A query that sees nothing gets zero. Where the context has a cache, it keeps
    the two sums over the places before, under `key`, and the features are those of the new places.
    """
    ones = torch.ones_like(v[..., :1])
    if context.cache is not None and pattern.plain_causal and context.key.document is None:
        before = context.cache.get(key) or (None, None)
        (total, sum_v), (count, sum_1) = _carried(*turned, v, before[0]), _carried(*features, ones, before[1])
        context.cache.put(key, sum_v, sum_1)
    elif context.query is not context.key or context.key.document is not None:
        mask = context.mask(pattern)
        total, count = _pairwise(*turned, v, mask), _pairwise(*features, ones, mask)
    elif pattern.plain_causal:
        total, count = _prefix(*turned, v), _prefix(*features, ones)
    else:
        total, count = _pairs_of_sums(*turned, v), _pairs_of_sums(*features, ones)
    return total / count.masked_fill(count == 0, 1.0)


def implied_weights(features: Pair, turned: Pair, context: Context, pattern: Pattern) -> Tensor:
    """(t_i·u_j) / Σ_j q_i·k_j for the allowed j, else 0, [B, H, Q, K]: what `weighted_mean` multiplies values with."""
    mask = context.mask(pattern)
    products, counted = (
        (q @ k.mT if mask is None else (q @ k.mT).masked_fill(~mask, 0.0)) for q, k in (turned, features)
    )
    count = counted.sum(-1, keepdim=True)
    return products / count.masked_fill(count == 0, 1.0)


def require_plain(pattern: Pattern, name: str) -> None:
    """Refuse a pattern that sums over all places, or all earlier ones, cannot follow."""
    if not (pattern.full or pattern.plain_causal):
        raise ValueError(
            f"{name} attention sums over all places or all earlier ones, so it cannot follow the pattern "
            f"{type(pattern).__name__}; use model/pattern=causal or full, or model/attention=mha."
        )


def require_full(pattern: Pattern, name: str) -> None:
    """Refuse every pattern but the full one: for an attention that mixes all places before any of them asks."""
    if not pattern.full:
        others = "linear, performer, reformer or mha" if pattern.plain_causal else "mha"
        raise ValueError(
            f"{name} attention mixes all places of a row before any of them asks, so it cannot follow the pattern "
            f"{type(pattern).__name__}; use model/pattern=full where the future may be seen, or "
            f"model/attention={others} to keep this pattern."
        )


def refusal_of_terms(position: Position, name: str) -> str | None:
    """Why attention without scores cannot work with a position that adds to them; None if it does not."""
    if not (position.has_bias or position.has_scores):
        return None
    return (
        f"{name} attention has no scores that the position {type(position).__name__} could add to; use "
        "model/position=rope, sinusoidal, learned or none, or model/attention=mha"
    )


def split_heads(x: Tensor, head_dim: int) -> Tensor:
    """[B, T, H·E] → [B, H, T, E]."""
    return x.view(*x.shape[:2], -1, head_dim).transpose(1, 2)


def _sum_of(k: Tensor, v: Tensor) -> Tensor:
    """Σ_j k_j v_jᵀ, [B, H, M, E]."""
    return k.mT @ v.to(k.dtype)


def _pairs_of_sums(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Σ_j (q_i·k_j) v_j over all j, the sum over j first."""
    return q @ _sum_of(k, v)


def _pairwise(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
    """Σ_j (q_i·k_j) v_j over the allowed j, by its definition."""
    products = q @ k.mT
    return (products if mask is None else products.masked_fill(~mask, 0.0)) @ v.to(q.dtype)


def _prefix(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Σ_{j≤i} (q_i·k_j) v_j: pairs within a chunk, and the sum of all chunks before."""
    length = q.shape[-2]
    q, k, v = (_chunks(x.to(q.dtype)) for x in (q, k, v))
    sums = (k.mT @ v).cumsum(dim=2)
    before = torch.cat([torch.zeros_like(sums[:, :, :1]), sums[:, :, :-1]], dim=2)
    return ((q @ k.mT).tril() @ v + q @ before).flatten(2, 3)[:, :, :length]


def _carried(q: Tensor, k: Tensor, v: Tensor, before: Tensor | None) -> tuple[Tensor, Tensor]:
    """Σ_{j≤i} (q_i·k_j) v_j over these places and those whose Σ_j k_j v_jᵀ is `before`, and that sum with these."""
    if before is None:
        return _prefix(q, k, v), _sum_of(k, v)
    return _prefix(q, k, v) + q @ before, before + _sum_of(k, v)


def _chunks(x: Tensor) -> Tensor:
    """[B, H, T, M] → [B, H, N, _CHUNK, M], filled up with zeros."""
    x = functional.pad(x, (0, 0, 0, -x.shape[-2] % _CHUNK))
    return x.view(*x.shape[:2], -1, _CHUNK, x.shape[-1])
