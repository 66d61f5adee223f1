"""Position encodings whose bias is a learned function of distance: Kerple and FIRE."""

from __future__ import annotations

import math
from typing import Annotated

import torch
from torch import Tensor

from swapformer.model.context import Context
from swapformer.model.dims import Dims
from swapformer.model.layers import Linear, Role, gain
from swapformer.model.position.base import Position, wide
from swapformer.ranges import Count, Positive, Within


def _away(context: Context) -> Tensor:
    """|p_i − p_j|, [B|1, 1, Q, K]."""
    return context.distance.abs()[:, None].to(wide(context.dtype))


class KerpleLog(Position):
    """bias_h(i, j) = −r₁ · ln(1 + r₂ · |p_i − p_j|) after the scaling, with r₁, r₂ > 0 learned for each head.

    The logarithmic kernel of Chi et al. 2022, arXiv:2205.09921. r is the exponential of its parameter, and all heads
    start alike (the authors start them at random and clip them).

    Args:
        scale: r₁ at the start.
        rate: r₂ at the start, per position.
    """

    has_bias = True
    reads = ("num_heads",)

    def __init__(self, dims: Dims, *, scale: Positive, rate: Positive) -> None:
        super().__init__(dims)
        self.log_scale = gain(dims.num_heads, 1, 1, start=math.log(scale))
        self.log_rate = gain(dims.num_heads, 1, 1, start=math.log(rate))

    def bias(self, context: Context) -> Tensor:
        return (-self.log_scale.exp() * torch.log1p(self.log_rate.exp() * _away(context))).to(context.dtype)


class KerplePower(Position):
    """bias_h(i, j) = −r₁ · |p_i − p_j|^r₂ after the scaling, with r₁ > 0 and 0 < r₂ < 2 learned for each head.

    The power kernel of Chi et al. 2022, arXiv:2205.09921; r₂ = 1 is ALiBi with learned slopes. r₁ is the exponential of
    its parameter and r₂ twice the logistic function of its own, and all heads start alike.

    Args:
        scale: r₁ at the start.
        power: r₂ at the start.
    """

    has_bias = True
    reads = ("num_heads",)

    def __init__(self, dims: Dims, *, scale: Positive, power: Annotated[float, Within("(0, 2)")]) -> None:
        super().__init__(dims)
        self.log_scale = gain(dims.num_heads, 1, 1, start=math.log(scale))
        self.logit_power = gain(dims.num_heads, 1, 1, start=math.log(power / (2 - power)))

    def bias(self, context: Context) -> Tensor:
        power = 2 * self.logit_power.sigmoid()
        return (-self.log_scale.exp() * _away(context) ** power).to(context.dtype)


class FIRE(Position):
    """bias_h(i, j) = f_h(ψ(|p_i − p_j|) / ψ(max(L, p_i, p_j))) after the scaling, with ψ(x) = ln(1 + c·x).

    f is a network 1 → width → H with one ReLU layer; c > 0 and L > 0 are learned, as exponentials of their parameters.
    Li et al. 2024, arXiv:2310.04418. The quotient lies in [0, 1] whatever the length, so longer sequences give f no
    new inputs. For p_j ≤ p_i it is the paper's causal form. Beyond L it depends on p_i itself.

    Args:
        width: hidden width of f.
        rate: c at the start, per position.
        threshold: L at the start, in positions; the paper takes a quarter of the training length.
    """

    relative = False
    has_bias = True
    reads = ("num_heads",)

    def __init__(self, dims: Dims, *, width: Count, rate: Positive, threshold: Positive) -> None:
        super().__init__(dims)
        self.log_rate = gain(1, start=math.log(rate))
        self.log_threshold = gain(1, start=math.log(threshold))
        self.up = Linear(1, width, Role.POSITION_MAP, bias=True)
        self.down = Linear(width, dims.num_heads, Role.POSITION_MAP, bias=True)

    def bias(self, context: Context) -> Tensor:
        precision, rate = wide(context.dtype), self.log_rate.exp()
        last = torch.maximum(context.query.position[:, :, None], context.key.position[:, None, :]).to(precision)
        reach = torch.log1p(rate * torch.maximum(last, self.log_threshold.exp()))
        share_BQK = torch.log1p(rate * context.distance.abs().to(precision)) / reach
        hidden = self.up(share_BQK[..., None].to(self.up.weight.dtype)).relu()
        return self.down(hidden).permute(0, 3, 1, 2).to(context.dtype)
