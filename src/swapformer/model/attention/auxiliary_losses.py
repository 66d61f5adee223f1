"""Losses that pull the heads of a layer: apart from each other, or each towards a behaviour."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor
from torch.nn import functional

from swapformer.model.attention.linear_ops import wide
from swapformer.model.context import Context
from swapformer.model.kernel import AttentionPlan, Reference
from swapformer.model.position import Position

BEHAVIOURS: Mapping[str, Callable[[Tensor], Tensor]] = {
    "previous": lambda back: back == 1,
    "local": lambda back: back.abs().neg().float().exp2(),
    "global": torch.ones_like,
}
"""What a guided head shall look at, as a function of places back: shares of its weight, up to a factor."""


class Pulls:
    """What the heads of a layer are pulled to, as a loss.

    Args:
        orthogonality: weight of `overlap`; 0 for none.
        behaviours: for each of BEHAVIOURS, its weight for each head from head 0; heads beyond the list are free.
        num_heads: H.
        plan: what the attention computes.

    Raises:
        ValueError: if a weight is negative, there is no pair of heads, there are fewer heads than weights, or the
            pattern shows no other place.
    """

    def __init__(
        self, orthogonality: float, behaviours: Mapping[str, Sequence[float]], num_heads: int, plan: AttentionPlan
    ) -> None:
        if orthogonality < 0 or (orthogonality and num_heads < 2):
            raise ValueError(
                "`orthogonality` must be at least 0, and 0 for a single head, but it is "
                f"{orthogonality} for `num_heads` = {num_heads}."
            )
        for name, weights in behaviours.items():
            if len(weights) > num_heads or any(weight < 0 for weight in weights):
                raise ValueError(
                    f"`{name}_pull` must hold a weight of at least 0 for each head from head 0, at most {num_heads}, "
                    f"but it is {list(weights)}."
                )
        self.orthogonality, self.plan = orthogonality, plan
        self.guided = [
            (name, head, weight)
            for name, weights in behaviours.items()
            for head, weight in enumerate(weights)
            if weight
        ]
        reach = plan.pattern.reach
        if self.guided and max(reach.before, reach.after) < 1 and not reach.landmarks:
            raise ValueError(
                f"a guided head must have a choice of places, but the pattern {type(plan.pattern).__name__} shows each "
                "place itself alone; use model/pattern=causal, or a wider one."
            )

    def __bool__(self) -> bool:
        return bool(self.orthogonality or self.guided)

    def loss(
        self, q: Tensor, k: Tensor, heads: Tensor, position: Position, context: Context, *, own: bool
    ) -> Tensor | None:
        """The sum of all pulls, of which behaviours count where places look at their `own` sequence; None if none does.

        q [B, H, Q, E] and k [B, H, K, E] are rotated, `heads` [B, H, Q, E] is what came of them.
        """
        losses = [self.orthogonality * overlap(heads, context.query.padding)] if self.orthogonality else []
        if self.guided and own:
            weights = wide(Reference.weights(q, k, self.plan, position, context))
            back = context.query.order[:, :, None] - context.key.order[:, None, :]
            allowed = _allowed(context, self.plan).expand(-1, weights.shape[1], -1, -1)
            for name, head, weight in self.guided:
                shares = BEHAVIOURS[name](back).to(weights.dtype) * allowed[:, head]
                losses.append(weight * distance(weights[:, head], shares))
        return torch.stack(losses).sum() if losses else None


def overlap(heads: Tensor, padding: Tensor | None) -> Tensor:
    """Mean of cos²(o_h, o_g) over pairs of heads h ≠ g and places that are not padding, of heads [B, H, T, E].

    0 when the heads' outputs are orthogonal at every place, 1 when they are parallel.
    """
    unit = functional.normalize(wide(heads).transpose(1, 2), dim=-1)
    squared = (unit @ unit.mT).square()
    count = heads.shape[1]
    pairs = squared.sum(dim=(-1, -2)) - squared.diagonal(dim1=-2, dim2=-1).sum(-1)
    return _mean(pairs / (count * (count - 1)), None if padding is None else ~padding)


def distance(weights: Tensor, shares: Tensor) -> Tensor:
    """Mean over queries of Σ_j (w_ij − p_ij)², p_i = shares_i / Σ_j shares_ij, both [B, Q, K], without empty rows."""
    total = shares.sum(-1, keepdim=True)
    off = (weights - shares / total.masked_fill(total == 0, 1.0)).square().sum(-1)
    return _mean(off, (total > 0).squeeze(-1))


def _allowed(context: Context, plan: AttentionPlan) -> Tensor:
    """True where a query may look, bool [B|1, H|1, Q, K]; padding asks nothing."""
    allowed = context.mask(plan.pattern)
    if allowed is None:
        allowed = torch.ones(1, 1, len(context.query), len(context.key), dtype=torch.bool).to(context.key.order.device)
    padding = context.query.padding
    return allowed if padding is None else allowed & ~padding[:, None, :, None]


def _mean(values: Tensor, counted: Tensor | None) -> Tensor:
    """The mean over the counted ones of values [B, T]; 0 if there are none."""
    if counted is None:
        return values.mean()
    counted = counted.expand_as(values)
    return values.masked_fill(~counted, 0.0).sum() / counted.sum().clamp(min=1)
