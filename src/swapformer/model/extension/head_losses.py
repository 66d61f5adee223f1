"""Extensions that add a loss on heads to the training: orthogonality, and guidance towards known behaviours."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional

from swapformer.model.context import Context
from swapformer.model.dims import Dims
from swapformer.model.extension.base import Extension
from swapformer.model.ops import widen
from swapformer.model.pattern import Pattern
from swapformer.ranges import NonNegative

BEHAVIOURS: Mapping[str, Callable[[Tensor], Tensor]] = {
    "previous": lambda back: back == 1,
    "local": lambda back: back.abs().neg().float().exp2(),
    "global": torch.ones_like,
}
"""What a guided head shall attend to, as a function of positions back: shares of its weight, up to a factor."""


class Orthogonality(Extension):
    """loss = w · mean over tokens and pairs of heads h ≠ g of cos²(o_h, o_g), for the heads' outputs o.

    The contextual part of Lee et al. 2019 (arXiv:1910.04500). Or o are the heads' attention weights, one row for each
    query, which are computed once more for it: where heads look, as Li et al. 2018 (arXiv:1810.10183) disagree on
    positions. Outputs may be orthogonal though heads look at the same tokens.

    Args:
        weight: w; 0 for no loss.
        of: what is pushed apart, outputs or weights.

    Raises:
        ValueError: if w is negative, or there is but one head.
    """

    training_only = True

    def __init__(self, dims: Dims, *, weight: NonNegative, of: Literal["outputs", "weights"] = "outputs") -> None:
        if weight < 0 or (weight and dims.num_heads < 2):
            raise ValueError(
                "`weight` of orthogonality must be at least 0, and 0 for a single head, but it is "
                f"{weight} for `num_heads` = {dims.num_heads}."
            )
        self.weight, self.of, self.has_auxiliary_loss = weight, of, weight > 0

    def loss(self, heads: Tensor, weights: Callable[[], Tensor], context: Context, *, crosses: bool) -> Tensor | None:
        if not self.weight:
            return None
        return self.weight * overlap(heads if self.of == "outputs" else weights(), context.query.padding)


class Guidance(Extension):
    """loss = Σ_h w_h · mean over queries i of Σ_j (a_hij − p_ij)², for attention weights a, one p for each behaviour.

    p_i lies on position i − 1 (previous), or halves with each position of distance (local), or is even (global), among
    the positions that i may see. In the spirit of Deshpande & Narasimhan 2020 (arXiv:2010.02399). The attention weights
    are computed once more for it. Attention to another sequence is not guided. To forbid a head all else, use a pattern
    for each head (model/pattern=guided_heads).

    Args:
        previous_loss, local_loss, global_loss: w for each head from head 0; heads beyond the list are free.

    Raises:
        ValueError: if a weight is negative, there are fewer heads than weights, or the pattern shows no other position.
    """

    uses = ("pattern",)
    training_only = True

    def __init__(
        self,
        dims: Dims,
        *,
        pattern: Pattern,
        previous_loss: Sequence[NonNegative],
        local_loss: Sequence[NonNegative],
        global_loss: Sequence[NonNegative],
    ) -> None:
        self.guided: list[tuple[str, int, float]] = []
        for name, weights in (("previous", previous_loss), ("local", local_loss), ("global", global_loss)):
            if len(weights) > dims.num_heads or any(weight < 0 for weight in weights):
                raise ValueError(
                    f"`{name}_loss` of guidance must hold a weight of at least 0 for each head from head 0, at most "
                    f"{dims.num_heads}, but it is {list(weights)}."
                )
            self.guided += [(name, head, weight) for head, weight in enumerate(weights) if weight]
        reach = pattern.reach
        if self.guided and max(reach.before, reach.after) < 1 and not reach.landmarks:
            raise ValueError(
                f"a guided head must have a choice of positions, but the pattern {type(pattern).__name__} shows each "
                "position only itself; use model/pattern=causal, or a wider one."
            )
        self.pattern, self.has_auxiliary_loss = pattern, bool(self.guided)

    def loss(self, heads: Tensor, weights: Callable[[], Tensor], context: Context, *, crosses: bool) -> Tensor | None:
        if crosses or not self.guided:
            return None
        weights_BHQK, losses = widen(weights()), []
        back = context.query.order[:, :, None] - context.key.order[:, None, :]
        allowed, padding = context.mask(self.pattern), context.query.padding
        if allowed is None:
            allowed = torch.ones(1, 1, *back.shape[1:], dtype=torch.bool, device=back.device)
        if padding is not None:  # padding has no queries
            allowed = allowed & ~padding[:, None, :, None]
        allowed = allowed.expand(-1, weights_BHQK.shape[1], -1, -1)
        for name, head, weight in self.guided:
            shares = BEHAVIOURS[name](back).to(weights_BHQK.dtype) * allowed[:, head]
            losses.append(weight * distance(weights_BHQK[:, head], shares))
        return torch.stack(losses).sum()


def overlap(heads: Tensor, padding: Tensor | None) -> Tensor:
    """Mean of cos²(o_h, o_g) over pairs of heads h ≠ g and tokens that are not padding, of rows o [B, H, T, E].

    0 when the heads' rows are orthogonal at every token, 1 when they are parallel.
    """
    unit = functional.normalize(widen(heads).transpose(1, 2), dim=-1)
    squared = (unit @ unit.mT).square()
    count = heads.shape[1]
    pairs = squared.sum(dim=(-1, -2)) - squared.diagonal(dim1=-2, dim2=-1).sum(-1)
    return _mean(pairs / (count * (count - 1)), None if padding is None else ~padding)


def distance(weights: Tensor, shares: Tensor) -> Tensor:
    """Mean over queries of Σ_j (w_ij − p_ij)², p_i = shares_i / Σ_j shares_ij, both [B, Q, K], without empty rows."""
    total = shares.sum(-1, keepdim=True)
    off = (weights - shares / total.masked_fill(total == 0, 1.0)).square().sum(-1)
    return _mean(off, (total > 0).squeeze(-1))


def _mean(values: Tensor, counted: Tensor | None) -> Tensor:
    """The mean over the counted ones of values [B, T]; 0 without any."""
    if counted is None:
        return values.mean()
    counted = counted.expand_as(values)
    return values.masked_fill(~counted, 0.0).sum() / counted.sum().clamp(min=1)
