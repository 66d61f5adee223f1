"""The specification of attention."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional

from swapformer.model.context import Context
from swapformer.model.dims import Dims
from swapformer.model.kernel.base import AttentionPlan, Kernel
from swapformer.model.position import Position, shared_bias


class Reference(Kernel):
    """weights = normaliser(mask(scale · (raw(q, k) + scores) + bias)), out = dropout(weights) · v."""

    def __init__(self, dims: Dims) -> None:
        pass

    def refuses(self, plan: AttentionPlan, position: Position) -> None:
        return None

    def __call__(
        self, q: Tensor, k: Tensor, v: Tensor, plan: AttentionPlan, position: Position, context: Context, dropout: float
    ) -> Tensor:
        weights = self.weights(q, k, plan, position, context)
        return functional.dropout(weights, dropout, training=dropout > 0) @ v

    @staticmethod
    def weights(q: Tensor, k: Tensor, plan: AttentionPlan, position: Position, context: Context) -> Tensor:
        """The attention weights, [B, H, Q, K]."""
        raw = plan.score.raw(q, k)
        if (scores := position.scores(q, k, context)) is not None:
            raw = raw + scores
        logits = plan.score.scale * raw
        if (bias := shared_bias(position, context)) is not None:
            logits = logits + bias
        if (mask := context.mask(plan.pattern)) is not None:
            logits = logits.masked_fill(~mask, float("-inf"))
        return plan.normaliser(logits)
