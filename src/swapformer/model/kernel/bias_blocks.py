"""Attention with a bias, a block of queries at a time: neither bias nor mask is ever formed for all pairs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional

from swapformer.model.context import Context
from swapformer.model.kernel.base import AttentionPlan
from swapformer.model.ops import head_products, head_sums, widen, without_autocast
from swapformer.model.position import Position

Fused = Callable[..., Tensor]
"""(q, k, v, attn_mask=term) → softmax(scale · q·k + term) · v, without the weights in memory."""

ROWS = 256
"""Queries of a block, and those from which a bias by distance is cut into blocks: nearly fastest on a CPU."""

LARGE = 2**21
"""Pairs from which other biases are cut into blocks: each layer computes them anew, so only memory is saved."""


def pays(position: Position, context: Context) -> bool:
    """Whether blocks are faster than a bias for all pairs, as measured on a CPU, or that bias would be large."""
    queries, keys = len(context.query), len(context.key)
    if not position.has_bias or not position.pairwise or position.depends_on_length:
        return False
    return queries >= ROWS and (_by_distance(position, context) or queries * keys >= LARGE)


def attend_in_blocks(
    q: Tensor, k: Tensor, v: Tensor, plan: AttentionPlan, position: Position, context: Context, fused: Fused
) -> Tensor:
    """softmax(scale · q·k + bias) · v, [B, H, Q, E], in memory that grows with Q + K.

    Queries run from the last to the first, so that the bias of a block is a window into a table of all distances, which
    is no copy. Terms that are learned or that need memory are computed again in the backward pass.
    """
    terms = context.once(
        ("terms", position, plan.pattern, q.dtype), lambda: BiasTerms(plan, position, context, q.dtype)
    )
    outs: list[Tensor] = []
    end = len(context.query)
    for rows in torch.split(q.flip(2), ROWS, dim=2):
        queries = range(end - rows.shape[2], end)
        keys = terms.keys_of(queries)
        near = rows, k[:, :, keys.start : keys.stop], v[:, :, keys.start : keys.stop]
        if terms.free or not torch.is_grad_enabled():
            out = fused(*near, attn_mask=terms.of(queries, keys))
        else:
            out = _Recomputed.apply(fused, terms, queries, keys, plan, *near, *terms.learned)  # type: ignore[no-untyped-call]
        outs.append(out)
        end = queries.start
    return torch.cat(outs, dim=2).flip(2)


def _by_distance(position: Position, context: Context) -> bool:
    """Whether one number for each distance is the whole bias."""
    return position.relative and context.in_order


class BiasTerms:
    """What is added to the logits of a block of queries: the bias, and −∞ where a key is forbidden.

    Attributes:
        learned: the tensors that gradients of the terms go to.
        free: whether terms need no memory and have no gradient.
    """

    def __init__(self, plan: AttentionPlan, position: Position, context: Context, dtype: torch.dtype) -> None:
        self.pattern, self.position, self.context, self.dtype = plan.pattern, position, context, dtype
        self.masked = context.masks_by_distance(plan.pattern)
        self.table = self._table() if _by_distance(position, context) else None
        weights = position.parameters() if self.table is None else [self.table]
        self.learned = tuple(weight for weight in weights if weight.requires_grad)
        self.free = self.table is not None and self.masked and not self.learned

    def keys_of(self, queries: range) -> range:
        """The keys that some queries may attend to, as far as the pattern's reach says."""
        reach, length = self.pattern.reach, len(self.context.key)
        if self.context.query is not self.context.key or not self.context.key.consecutive or reach.landmarks:
            return range(length)
        return range(max(queries.start - int(min(reach.before, length)), 0),
                     min(queries.stop + int(min(reach.after, length)), length))  # fmt: skip

    def of(self, queries: range, keys: range) -> Tensor:
        """The term [B|1, H|1, I, J] of I queries, from the last to the first, and J keys."""
        window = None if self.table is None else self._window(self.table, queries, keys)
        if window is not None and self.masked:
            return window
        block = self.context.at(slice(queries.start, queries.stop), slice(keys.start, keys.stop))
        term = self._bias(block).flip(2) if window is None else window
        allowed = block.mask(self.pattern)
        return term if allowed is None else torch.where(allowed.flip(2), term, float("-inf"))

    def _window(self, table: Tensor, queries: range, keys: range) -> Tensor:
        first = keys.start + len(self.context.key) - queries.stop
        window: Tensor = _Window.apply(table, first, len(queries), len(keys))  # type: ignore[no-untyped-call]
        return window

    def _bias(self, context: Context) -> Tensor:
        bias = self.position.bias(context)
        assert bias is not None, "a position that states `has_bias` has one"
        return bias.to(self.dtype)

    def _table(self) -> Tensor:
        """The term at the distances p_j − p_i = 1 − T … T − 1, [1, H|1, 1, 2T − 1]."""
        distances = self.context.distances
        bias = self._bias(distances)
        allowed = distances.mask(self.pattern) if self.masked else None
        return (bias if allowed is None else torch.where(allowed, bias, float("-inf"))).contiguous()


class _Window(torch.autograd.Function):
    """out[0, h, i, j] = table[0, h, 0, first + i + j] for I rows and J columns, a view of the table [1, H, 1, N]."""

    @staticmethod
    def forward(ctx: Any, table: Tensor, first: int, rows: int, columns: int) -> Tensor:
        ctx.first, ctx.size = first, table.shape
        return table.as_strided(
            (1, table.shape[1], rows, columns), (0, table.stride(1), 1, 1), table.storage_offset() + first
        )

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        rows, columns = gradient.shape[2:]
        # Rows padded by I and cut one number shorter: row i has moved i to the right.
        moved = functional.pad(gradient, (0, rows)).flatten(2)[..., :-rows].view(1, -1, rows, rows + columns - 1)
        whole = gradient.new_zeros(ctx.size)
        whole[..., 0, ctx.first : ctx.first + rows + columns - 1] = moved.sum(2)
        return whole, None, None, None


class _Recomputed(torch.autograd.Function):
    """A block's attention whose backward pass computes term and weights again, as the reference does."""

    @staticmethod
    def forward(
        ctx: Any, fused: Fused, terms: BiasTerms, queries: range, keys: range, plan: AttentionPlan, *tensors: Tensor
    ) -> Tensor:
        ctx.block, ctx.plan, ctx.learned = (terms, queries, keys), plan, tensors[3:]
        ctx.save_for_backward(*tensors[:3])
        return fused(*tensors[:3], attn_mask=terms.of(queries, keys))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        terms, queries, keys = ctx.block
        with torch.enable_grad(), without_autocast(gradient.device):
            q, k, v = (x.detach().requires_grad_() for x in ctx.saved_tensors)
            logits = head_products(ctx.plan.score.scale * widen(q), widen(k)) + terms.of(queries, keys)
            weights = logits.softmax(-1) if terms.masked else ctx.plan.normaliser(logits)
            out = head_sums(weights, widen(v)).to(gradient.dtype)
        found = torch.autograd.grad(out, [q, k, v, *ctx.learned], gradient, allow_unused=True)
        return (None,) * 5 + found
