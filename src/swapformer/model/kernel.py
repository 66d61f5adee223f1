"""Kernels: how attention is computed. `reference` is the specification; every other one must equal it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

from swapformer.model.context import Context
from swapformer.model.dims import Dims
from swapformer.model.normaliser import Normaliser
from swapformer.model.pattern import Pattern
from swapformer.model.position import Position
from swapformer.model.score import Score


@dataclass(frozen=True, eq=False)
class Plan:
    """What an attention asks of a kernel, tensors aside."""

    score: Score
    normaliser: Normaliser
    pattern: Pattern


class Kernel(ABC):
    """Base of the slot."""

    @abstractmethod
    def refuses(self, plan: Plan, position: Position) -> str | None:
        """Why this kernel cannot compute such an attention; None if it can."""

    @abstractmethod
    def __call__(
        self, q: Tensor, k: Tensor, v: Tensor, plan: Plan, position: Position, context: Context, dropout: float
    ) -> Tensor:
        """out [B, H, Q, E] for q [B, H, Q, E] and k, v [B, H, K, E], rotated already."""


class Reference(Kernel):
    """weights = normaliser(mask(scale · (raw(q, k) + scores) + bias)), out = dropout(weights) · v."""

    def __init__(self, dims: Dims) -> None:
        pass

    def refuses(self, plan: Plan, position: Position) -> None:
        return None

    def __call__(
        self, q: Tensor, k: Tensor, v: Tensor, plan: Plan, position: Position, context: Context, dropout: float
    ) -> Tensor:
        weights = self.weights(q, k, plan, position, context)
        return functional.dropout(weights, dropout, training=dropout > 0) @ v

    @staticmethod
    def weights(q: Tensor, k: Tensor, plan: Plan, position: Position, context: Context) -> Tensor:
        """The attention weights, [B, H, Q, K]."""
        raw = plan.score.raw(q, k)
        if (scores := position.scores(q, k, context)) is not None:
            raw = raw + scores
        logits = plan.score.scale * raw
        if (bias := context.bias(position)) is not None:
            logits = logits + bias
        if (mask := context.mask(plan.pattern)) is not None:
            logits = logits.masked_fill(~mask, float("-inf"))
        return plan.normaliser(logits)


_BACKENDS = {
    "math": SDPBackend.MATH,
    "efficient": SDPBackend.EFFICIENT_ATTENTION,
    "flash": SDPBackend.FLASH_ATTENTION,
    "cudnn": SDPBackend.CUDNN_ATTENTION,
}


class SDPA(Kernel):
    """torch's fused scaled dot-product attention.

    Args:
        backend: auto, math, efficient, flash or cudnn; auto lets torch choose.

    Raises:
        ValueError: for another backend.
    """

    choices: ClassVar[Mapping[str, tuple[str, ...]]] = {"backend": ("auto", *_BACKENDS)}

    def __init__(self, dims: Dims, *, backend: str) -> None:
        if backend != "auto" and backend not in _BACKENDS:
            raise ValueError(f"`backend` of sdpa must be one of auto, {', '.join(_BACKENDS)}, but it is {backend!r}.")
        self.backend = _BACKENDS.get(backend)

    def refuses(self, plan: Plan, position: Position) -> str | None:
        if not plan.normaliser.is_softmax:
            return f"kernel sdpa computes softmax only, not {type(plan.normaliser).__name__}"
        if not plan.score.is_dot:
            return f"kernel sdpa computes dot products only, not {type(plan.score).__name__}"
        if position.has_scores:
            return f"kernel sdpa cannot add the content-dependent scores of {type(position).__name__}"
        return None

    def __call__(
        self, q: Tensor, k: Tensor, v: Tensor, plan: Plan, position: Position, context: Context, dropout: float
    ) -> Tensor:
        # is_causal is aligned to the top left, so it is right only when the queries are all of the keys.
        causal = plan.pattern.plain_causal and context.plain and not position.has_bias
        key = ("sdpa", plan.pattern, position, q.dtype)
        mask = None if causal else context.once(key, lambda: _mask(plan, position, context, q.dtype))
        with nullcontext() if self.backend is None else sdpa_kernel(self.backend):
            return functional.scaled_dot_product_attention(
                q, k, v, attn_mask=mask, dropout_p=dropout, is_causal=causal, scale=float(plan.score.scale)
            )


def _mask(plan: Plan, position: Position, context: Context, dtype: torch.dtype) -> Tensor | None:
    """Mask and bias as the one argument that SDPA takes: bool where there is no bias, else `dtype` with −∞."""
    allowed, bias = context.mask(plan.pattern), context.bias(position)
    if bias is None:
        return allowed
    return (bias if allowed is None else torch.where(allowed, bias, float("-inf"))).to(dtype)


class Auto(Kernel):
    """The fastest kernel that can do what is asked: sdpa, else reference."""

    def __init__(self, dims: Dims) -> None:
        self.fast, self.general = SDPA(dims, backend="auto"), Reference(dims)

    def refuses(self, plan: Plan, position: Position) -> None:
        return None

    def __call__(
        self, q: Tensor, k: Tensor, v: Tensor, plan: Plan, position: Position, context: Context, dropout: float
    ) -> Tensor:
        kernel: Kernel = self.general if self.fast.refuses(plan, position) else self.fast
        return kernel(q, k, v, plan, position, context, dropout)
