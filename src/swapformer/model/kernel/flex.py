"""The kernel of torch's FlexAttention, with patterns as block masks and biases inside the fused kernel."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask, create_block_mask, flex_attention

from swapformer.model.context import Context
from swapformer.model.dims import Dims
from swapformer.model.kernel.base import AttentionPlan, Kernel, beyond_fused
from swapformer.model.pattern import Pattern
from swapformer.model.position import Position, shared_bias

Lookup = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
"""(row of the batch, head, query, key), all scalars → the value of that pair."""


class Flex(Kernel):
    """softmax(scale · q·k + bias) · v on a GPU, without the blocks that the pattern leaves empty (arXiv:2412.05496).

    If pairs differ only in distance, mask and bias are tables by distance, [H|1, 2T − 1]; otherwise they are read
    from the whole [B|1, H|1, Q, K], which costs memory but forms no logits. The gradient of a learned bias is summed in
    no fixed order. Compiled at first use, again for each length; on a CPU torch has the forward alone, not fused.
    """

    accelerator = "gpu"

    def __init__(self, dims: Dims) -> None:
        self.dropout, self.head_dim = dims.dropout, dims.head_dim

    def refuses(self, plan: AttentionPlan, position: Position) -> str | None:
        if self.dropout:
            return f"kernel flex cannot drop weights, but model.dropout={self.dropout}"
        if self.head_dim < 16:
            return f"kernel flex needs heads that are at least 16 wide, but they are {self.head_dim}"
        return beyond_fused("flex", plan, position)

    def __call__(
        self, q: Tensor, k: Tensor, v: Tensor, plan: AttentionPlan, position: Position, context: Context, dropout: float
    ) -> Tensor:
        assert dropout == 0, "flex has no dropout; `refuses` says so"
        unfused: Callable[..., Any] = flex_attention
        attend = self._fused if q.is_cuda else unfused
        mask = context.once(("flex", plan.pattern), lambda: _block_mask(plan.pattern, context))
        bias = context.once(("flex", position, q.dtype), lambda: _bias(position, context, q.dtype))
        modify = None if bias is None else lambda score, b, h, i, j: score + bias(b, h, i, j)
        shared = k.shape[1] != q.shape[1]
        try:
            return attend(q, k, v, score_mod=modify, block_mask=mask, scale=float(plan.score.scale), enable_gqa=shared)
        except torch._dynamo.exc.FailOnRecompileLimitHit as error:
            most = torch._dynamo.config.recompile_limit
            raise ValueError(
                f"kernel flex is compiled once for each length, and torch stops at {most}; train and evaluate at fewer "
                "lengths, or use model/kernel=auto."
            ) from error

    @cached_property
    def _fused(self) -> Callable[..., Any]:
        """The fused kernel; `fullgraph`, since torch would compute the unfused form without a word elsewhere."""
        return torch.compile(flex_attention, dynamic=False, fullgraph=True)


def _block_mask(pattern: Pattern, context: Context) -> BlockMask | None:
    """The pairs that pattern, padding and documents allow; None for all."""
    queries, keys = len(context.query), len(context.key)
    by_distance = context.masks_by_distance(pattern)
    mask = context.distances.mask(pattern) if by_distance else context.mask(pattern)
    if mask is None:
        return None
    allowed = _by_distance(mask, queries) if by_distance else _by_pair(mask.expand(-1, -1, queries, keys))
    rows = 1 if by_distance else mask.shape[0]
    return create_block_mask(allowed, rows, mask.shape[1], queries, keys, device=mask.device)


def _bias(position: Position, context: Context, dtype: torch.dtype) -> Lookup | None:
    """A position's bias pair by pair; None if it has none."""
    if not position.has_bias:
        return None
    by_distance = context.uniform and position.relative
    bias = shared_bias(position, context.distances if by_distance else context)
    assert bias is not None, "a position that states `has_bias` has one"
    return _by_distance(bias.to(dtype), len(context.query)) if by_distance else _by_pair(bias.to(dtype))


def _by_distance(table: Tensor, length: int) -> Lookup:
    """[1, H|1, 1, 2T − 1] read at key − query."""
    table_HR, shared = table[0, :, 0], table.shape[1] == 1
    return lambda b, h, i, j: table_HR[h * 0 if shared else h, j - i + length - 1]


def _by_pair(values: Tensor) -> Lookup:
    """[B|1, H|1, Q, K] read at the pair."""
    one_row, shared = values.shape[0] == 1, values.shape[1] == 1
    return lambda b, h, i, j: values[b * 0 if one_row else b, h * 0 if shared else h, i, j]
