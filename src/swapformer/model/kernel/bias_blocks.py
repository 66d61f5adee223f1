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

PAIRS = 2**19
"""Most pairs of a block whose weights are computed again, so that its memory does not grow with the length."""

LARGE = 2**19
"""Pairs from which other biases are cut into blocks: each layer computes them again, so only memory is saved."""


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
    if terms.free or not torch.is_grad_enabled():
        return terms.attend(fused, q, k, v)
    out: Tensor = _Recomputed.apply(fused, terms, plan, q, k, v, *terms.learned)  # type: ignore[no-untyped-call]
    return out


def _by_distance(position: Position, context: Context) -> bool:
    """Whether one number for each distance is the whole bias."""
    return position.relative and context.in_order


class BiasTerms:
    """The terms that are added to the logits of a block of queries: the bias, and −∞ where a key is forbidden.

    Attributes:
        learned: the tensors that gradients of the terms go to.
        free: whether terms need no memory and have no gradient.
        rows: queries of a block; an eighth where a bias is no function of distance, since it may need units for each
            pair, as FIRE's does.
    """

    def __init__(self, plan: AttentionPlan, position: Position, context: Context, dtype: torch.dtype) -> None:
        self.pattern, self.position, self.context, self.dtype = plan.pattern, position, context, dtype
        self.masked = context.masks_by_distance(plan.pattern)
        self.table = self._table() if _by_distance(position, context) else None
        weights = position.parameters() if self.table is None else [self.table]
        self.learned = tuple(weight for weight in weights if weight.requires_grad)
        self.free = self.table is not None and self.masked and not self.learned

        pairs = PAIRS if self.table is not None else PAIRS // 8
        self.rows = ROWS if self.free else max(1, min(ROWS, pairs // len(context.key)))

    def attend(self, fused: Fused, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """The output [B, H, Q, E] of all queries, block by block."""
        outs: list[Tensor] = []
        for (queries, keys), rows in zip(self.blocks(), torch.split(q.flip(2), self.rows, dim=2), strict=True):
            near = slice(keys.start, keys.stop)
            outs.append(fused(rows, k[:, :, near], v[:, :, near], attn_mask=self.of(queries, keys)))
        return torch.cat(outs, dim=2).flip(2)

    def blocks(self) -> list[tuple[range, range]]:
        """Queries of each block, the last ones first, and their keys: each block fits where the one before has been."""
        ends = range(len(self.context.query), 0, -self.rows)
        queries = [range(max(end - self.rows, 0), end) for end in ends]
        return [(block, self.keys_of(block)) for block in queries]

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
    """Attention whose backward pass computes terms and weights of a block again, as the reference does."""

    @staticmethod
    def forward(ctx: Any, fused: Fused, terms: BiasTerms, plan: AttentionPlan, *tensors: Tensor) -> Tensor:
        ctx.terms, ctx.plan, ctx.learned = terms, plan, tensors[3:]
        ctx.save_for_backward(*tensors[:3])
        return terms.attend(fused, *tensors[:3])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        inputs: tuple[Tensor, ...] = ctx.saved_tensors
        whole = [torch.zeros_like(tensor) for tensor in inputs]
        learned: list[Tensor | None] = [None] * len(ctx.learned)
        for queries, keys in ctx.terms.blocks():
            places = [slice(queries.start, queries.stop), *[slice(keys.start, keys.stop)] * 2]
            near = [tensor[:, :, place] for tensor, place in zip(inputs, places, strict=True)]
            of_inputs, of_learned = _block_gradients(ctx, queries, keys, near, gradient[:, :, places[0]])
            for total, place, part in zip(whole, places, of_inputs, strict=True):
                total[:, :, place] += part
            learned = [_sum(total, part) for total, part in zip(learned, of_learned, strict=True)]
        return None, None, None, *whole, *learned


def _block_gradients(
    ctx: Any, queries: range, keys: range, near: list[Tensor], gradient: Tensor
) -> tuple[tuple[Tensor, ...], tuple[Tensor | None, ...]]:
    """The gradients of a block's q, k, v, and those of all learned tensors; the block's weights are formed again."""
    terms, plan = ctx.terms, ctx.plan
    with torch.enable_grad(), without_autocast(gradient.device):
        q, k, v = (x.detach().requires_grad_() for x in near)
        logits = head_products(plan.score.scale * widen(q.flip(2)), widen(k)) + terms.of(queries, keys)
        weights = logits.softmax(-1) if terms.masked else plan.normaliser(logits)
        out = head_sums(weights, widen(v)).to(gradient.dtype)
    found = torch.autograd.grad(out, [q, k, v, *ctx.learned], gradient.flip(2), allow_unused=True)
    return found[:3], found[3:]


def _sum(total: Tensor | None, part: Tensor | None) -> Tensor | None:
    """The sum of two gradients, of which either may be missing."""
    return part if total is None else total if part is None else total + part
