"""Kernels over all pairs at once: the reference, which is the specification, and torch's fused attention."""

from __future__ import annotations

from contextlib import nullcontext
from functools import partial
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

from swapformer.model.context import Context
from swapformer.model.dims import Dims
from swapformer.model.kernel.base import AttentionPlan, Kernel, beyond_fused
from swapformer.model.kernel.bias_blocks import attend_in_blocks, pays
from swapformer.model.ops import computed_on, head_sums
from swapformer.model.position import Position, shared_bias


class Reference(Kernel):
    """weights = normaliser(mask(scale · (raw(q, k) + scores) + bias)), out = dropout(weights) · v."""

    def __init__(self, dims: Dims) -> None:
        pass

    def __call__(
        self, q: Tensor, k: Tensor, v: Tensor, plan: AttentionPlan, position: Position, context: Context, dropout: float
    ) -> Tensor:
        weights = self.weights(q, k, plan, position, context)
        return head_sums(functional.dropout(weights, dropout, training=dropout > 0), v)

    @staticmethod
    def weights(q: Tensor, k: Tensor, plan: AttentionPlan, position: Position, context: Context) -> Tensor:
        """The attention weights, [B, H, Q, K]."""
        return plan.normaliser(Reference.logits(q, k, plan, position, context))

    @staticmethod
    def logits(q: Tensor, k: Tensor, plan: AttentionPlan, position: Position, context: Context) -> Tensor:
        """The logits that the weights are made from, [B, H, Q, K]: −∞ where a query may not attend to a key."""
        raw = plan.score.raw(q, k)
        if (scores := position.scores(q, k, context)) is not None:
            raw = raw + scores
        logits = plan.score.scale * raw
        if (bias := shared_bias(position, context)) is not None:
            logits = logits + bias
        if (mask := context.mask(plan.pattern)) is not None:
            logits = logits.masked_fill(~mask, float("-inf"))
        return logits


_BACKENDS = {
    "math": SDPBackend.MATH,
    "efficient": SDPBackend.EFFICIENT_ATTENTION,
    "flash": SDPBackend.FLASH_ATTENTION,
    "cudnn": SDPBackend.CUDNN_ATTENTION,
}


class SDPA(Kernel):
    """torch's fused scaled dot-product attention; on a CPU a bias over many tokens is added block by block.

    Args:
        backend: auto, math, efficient, flash or cudnn; auto lets torch choose.

    Raises:
        ValueError: for another backend.
    """

    def __init__(self, dims: Dims, *, backend: Literal["auto", "math", "efficient", "flash", "cudnn"]) -> None:
        self.backend = _BACKENDS.get(backend)

    def refuses(self, plan: AttentionPlan, position: Position) -> str | None:
        return beyond_fused("sdpa", plan, position)

    def in_blocks(self, q: Tensor, position: Position, context: Context, dropout: float) -> bool:
        """Whether a bias is computed for blocks of queries: on a CPU, where that pays and no weights are dropped.

        A compiled model forms it at once, for torch's compiler cannot follow the windows.
        """
        fits = computed_on(q) == "cpu" and dropout == 0 and not torch.compiler.is_compiling()
        return fits and pays(position, context)

    def __call__(
        self, q: Tensor, k: Tensor, v: Tensor, plan: AttentionPlan, position: Position, context: Context, dropout: float
    ) -> Tensor:
        # is_causal is aligned to the top left, so it is right only when the queries are all of the keys.
        causal = plan.pattern.plain_causal and context.plain and not position.has_bias
        key = ("sdpa", plan.pattern, position, q.dtype)
        attend = partial(
            functional.scaled_dot_product_attention, dropout_p=dropout, is_causal=causal, scale=float(plan.score.scale)
        )
        groups, shared = k.shape[1], k.shape[1] != q.shape[1]
        with nullcontext() if self.backend is None else sdpa_kernel(self.backend):
            if self.in_blocks(q, position, context, dropout):
                return attend_in_blocks(q, k, v, plan, position, context, partial(attend, enable_gqa=shared))
            mask = None if causal else context.once(key, lambda: _mask(plan, position, context, q.dtype))
            if shared and q.shape[2] == 1:  # the heads of a group are as many queries of one head
                rows = q.reshape(len(q), groups, -1, q.shape[3])
                return attend(rows, k, v, attn_mask=_by_group(mask, groups, rows.shape[2])).reshape(q.shape)
            if (
                shared and computed_on(q) == "cuda" and mask is not None
            ):  # torch's fused kernels there take groups or a mask
                k, v = (x.repeat_interleave(q.shape[1] // groups, dim=1) for x in (k, v))
                shared = False
            return attend(q, k, v, attn_mask=mask, enable_gqa=shared)


def _by_group(mask: Tensor | None, groups: int, rows: int) -> Tensor | None:
    """The mask [B|1, H|1, 1, K] of one query, for `rows` heads of each group as queries: [B|1, G|1, rows, K]."""
    if mask is None:
        return None
    return mask.expand(-1, -1, rows, -1) if mask.shape[1] == 1 else mask.reshape(len(mask), groups, rows, -1)


def _mask(plan: AttentionPlan, position: Position, context: Context, dtype: torch.dtype) -> Tensor | None:
    """Mask and bias as the one argument that SDPA takes: bool where there is no bias, else `dtype` with −∞."""
    allowed, bias = context.mask(plan.pattern), shared_bias(position, context)
    if bias is None:
        return allowed
    return (bias if allowed is None else torch.where(allowed, bias, float("-inf"))).to(dtype)
