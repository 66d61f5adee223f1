"""How fast a recurrent mixer forgets: a step for each place, and a rate for each head."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from swapformer.model.attention.linear_ops import wide
from swapformer.model.dims import Dims
from swapformer.model.layers import Linear, Role, shift


class Decay(nn.Module):
    """Δ_t = softplus(W x_t + b + δ), log α_t = −exp(a + ρ) Δ_t, one of each for each head (Mamba-2: arXiv:2405.21060).

    exp(a) is spread evenly over the heads and softplus(b) by equal factors, so that heads start with memories of
    different lengths; ρ and δ are learned and start at zero. The paper draws both at random from the same ranges.

    Args:
        rate_min, rate_max: exp(a) of the first and the last head.
        step_min, step_max: Δ of the first and the last head where W x = 0, in places.

    Raises:
        ValueError: if a range does not rise from above 0.
    """

    rates: Tensor
    steps: Tensor

    def __init__(self, dims: Dims, *, rate_min: float, rate_max: float, step_min: float, step_max: float) -> None:
        super().__init__()
        for name, low, high in (("rate", rate_min, rate_max), ("step", step_min, step_max)):
            if not 0 < low <= high:
                raise ValueError(
                    f"`{name}_min` must lie above 0 and `{name}_max` not below it, but they are {low} and {high}."
                )
        rates = torch.linspace(rate_min, rate_max, dims.num_heads)
        steps = torch.linspace(math.log(step_min), math.log(step_max), dims.num_heads).exp()
        self.register_buffer("rates", rates.log(), persistent=False)
        self.register_buffer("steps", steps.expm1().log(), persistent=False)  # softplus of it is the step
        self.map = Linear(dims.d_model, dims.num_heads, Role.GATE, bias=False)
        self.rate, self.step = shift(dims.num_heads), shift(dims.num_heads)

    def forward(self, x: Tensor, padding: Tensor | None) -> tuple[Tensor, Tensor]:
        """log α and Δ, [B, H, T], both zero where padding [B|1, T] is: it forgets nothing and writes nothing."""
        step = functional.softplus(wide(self.map(x)) + wide(self.steps + self.step))
        if padding is not None:
            step = step.masked_fill(padding[..., None], 0.0)
        log_decay = -wide(self.rates + self.rate).exp() * step
        return log_decay.mT, step.mT
