"""Code that several attentions share: heads split, projections, patterns refused, cached keys, documents told apart."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

from swapformer.model.context import Context
from swapformer.model.dims import Dims
from swapformer.model.kernel import AttentionPlan, Kernel, Reference
from swapformer.model.layers import Linear, Role
from swapformer.model.ops import head_sums
from swapformer.model.pattern import Pattern
from swapformer.model.position import Position
from swapformer.model.taps import FORMED, Tapped

Hidden = Tensor | None
"""True where a token takes no part, bool [B|1, T]; None where all do."""


SCORED = {
    "hook_q": "B Q H E",
    "hook_k": "B K G E",
    "hook_v": "B K G E",
    "hook_rot_q": "B Q H E",
    "hook_rot_k": "B K G E",
    "hook_attn_scores": "B H Q K",
    "hook_pattern": "B H Q K",
    "hook_z": "B Q H E",
    "hook_result": "B Q H D",
}
"""The places of attentions with scores."""

IMPLIED = {
    "hook_q": "B Q H E",
    "hook_k": "B K H E",
    "hook_v": "B K H E",
    "hook_pattern": "B H Q K",
    "hook_z": "B Q H E",
    "hook_result": "B Q H D",
}
"""The places of attentions without scores whose computation implies weights."""


def split_heads(x: Tensor, head_dim: int) -> Tensor:
    """[B, T, H·E] → [B, H, T, E]."""
    return x.view(*x.shape[:2], -1, head_dim).transpose(1, 2)


def projections(dims: Dims, kv_width: int | None = None) -> tuple[Linear, Linear, Linear, Linear]:
    """W_q [H·E, D], W_k and W_v [kv_width, D], and W_o [D, H·E]; `kv_width` is H·E where it is None."""
    width = dims.num_heads * dims.head_dim
    shared = width if kv_width is None else kv_width
    return (
        Linear(dims.d_model, width, Role.QUERY, bias=dims.bias),
        Linear(dims.d_model, shared, Role.KEY, bias=dims.bias),
        Linear(dims.d_model, shared, Role.VALUE, bias=dims.bias),
        Linear(width, dims.d_model, Role.ATTENTION_OUT, bias=dims.bias),
    )


def require_plain(pattern: Pattern, name: str) -> None:
    """Raise ValueError for a pattern that sums over all tokens, or over all earlier ones, cannot follow."""
    if not (pattern.full or pattern.plain_causal):
        raise ValueError(
            f"{name} attention sums over all positions or all earlier ones, so it cannot follow the pattern "
            f"{type(pattern).__name__}; use model/pattern=causal or full, or model/attention=mha."
        )


def require_full(pattern: Pattern, name: str) -> None:
    """Raise ValueError for every pattern but the full one: the attention mixes all keys before it sees a query."""
    if not pattern.full:
        others = "linear, performer, reformer or mha" if pattern.plain_causal else "mha"
        raise ValueError(
            f"{name} attention mixes all positions of a row before any of them is a query, so it cannot follow the "
            f"pattern {type(pattern).__name__}; use model/pattern=full where the future may be seen, or "
            f"model/attention={others} to keep this pattern."
        )


def require_causal(pattern: Pattern, name: str) -> None:
    """Raise ValueError for a pattern that a recurrent state, which sums up the whole past, cannot follow."""
    if not pattern.plain_causal:
        raise ValueError(
            f"{name} goes from position to position and knows the past as one state, so it cannot follow the pattern "
            f"{type(pattern).__name__}; use model/pattern=causal, or model/attention=mha."
        )


def cached_positions(pattern: Pattern, position: Position) -> int | None:
    """The number of last positions that later queries may need, under a pattern and an encoding; None for all."""
    reach = pattern.reach
    bounded = math.isfinite(reach.before) and not reach.landmarks and position.pairwise
    return int(reach.before) + 1 if bounded else None


def with_cached(
    owner: object, k: Tensor, v: Tensor, context: Context, pattern: Pattern, position: Position, memory: Tensor | None
) -> tuple[Tensor, Tensor, Context]:
    """k and v [..., K, X] behind those that the cache holds for `owner`, and the context of what is returned.

    Keys out of the pattern's reach are left out. Those of a memory are the same for every query, and cached once.
    """
    if context.cache is None:
        return k, v, context
    if memory is not None:
        k, v = context.cache.once(owner, lambda: (k, v))
        return k, v, context
    k, v = context.cache.append(owner, k, v, last=cached_positions(pattern, position))
    return k, v, context.latest(k.shape[-2])


def for_each_document(mix: Callable[[Hidden, Hidden], Tensor], context: Context) -> Tensor:
    """The output of every query when its document is alone in the row: the others are hidden as padding is.

    It costs one `mix` for each document.

    Args:
        mix: (hidden queries [B|1, Q], hidden keys [B|1, K]) → [B, H, Q, X].
        context: what the queries and keys are.
    """
    query, key = context.query, context.key
    if query.document is None or key.document is None:
        return mix(query.padding, key.padding)
    out: Tensor | None = None
    for document in torch.unique(query.document):
        own_query, own_key = query.document == document, key.document == document
        mixed = mix(_others(own_query, query.padding), _others(own_key, key.padding))
        out = torch.where(own_query[:, None, :, None], mixed, 0.0 if out is None else out)
    assert out is not None, "a row without tokens has no documents"
    return out


def tap_heads(part: Tapped, place: str, x: Tensor) -> Tensor:
    """x [B, H, T, E] behind a tap that shows it as [B, T, H, E]."""
    return part.tap_as(place, x, _across, _across)


def _across(x: Tensor) -> Tensor:
    return x.transpose(1, 2)


def attend(
    part: Tapped,
    kernel: Kernel,
    qkv: tuple[Tensor, Tensor, Tensor],
    plan: AttentionPlan,
    position: Position,
    context: Context,
    dropout: float,
) -> Tensor:
    """The heads' outputs [B, H, Q, E] by the kernel, or by the reference where scores or weights are replaced."""
    q, k, v = qkv
    if part.watched(*FORMED):
        logits = part.tap("hook_attn_scores", Reference.logits(q, k, plan, position, context))
        weights = part.tap("hook_pattern", plan.normaliser(logits))
        if part.replaced(*FORMED):
            return head_sums(functional.dropout(weights, dropout, training=dropout > 0), v)
    return kernel(q, k, v, plan, position, context, dropout)


def mix_values(part: Tapped, v: Tensor, mix: Callable[[], Tensor], weights: Callable[[], Tensor]) -> Tensor:
    """The heads' outputs by `mix`, or weights · v where the weights that `mix` implies, [B, H, Q, K], are replaced."""
    if part.watched("hook_pattern"):
        implied = part.tap("hook_pattern", weights())
        if part.replaced("hook_pattern"):
            return implied @ v.to(implied.dtype)
    return mix()


def project_heads(part: Tapped, out: Linear, heads: Tensor, num_heads: int) -> Tensor:
    """W_o · heads + b [B, Q, D] for the outputs of the heads side by side, [B, Q, H·E]."""

    def by_head(x: Tensor) -> Tensor:
        return x.view(*x.shape[:-1], num_heads, -1)

    heads = part.tap_as("hook_z", heads, by_head, lambda x: x.flatten(-2))
    if part.watched("hook_result"):
        results = part.tap("hook_result", torch.einsum("bqhe,dhe->bqhd", by_head(heads), by_head(out.weight)))
        if part.replaced("hook_result"):
            return results.sum(2) if out.bias is None else results.sum(2) + out.bias
    return out(heads)


def masked(x: Tensor, hidden: Hidden) -> Tensor:
    """x [B, H, T, X] with zeros at the hidden tokens."""
    return x if hidden is None else x.masked_fill(hidden[:, None, :, None], 0.0)


def _others(own: Tensor, padding: Hidden) -> Tensor:
    return ~own if padding is None else ~own | padding
