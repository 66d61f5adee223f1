"""Residual streams of one tensor x: sums of x and a branch's update F(x), scaled, gated or dropped."""

from __future__ import annotations

from typing import Annotated

import torch
from torch import Tensor

from swapformer.model.dims import Dims, deepnorm_factors
from swapformer.model.layers import Linear, Role, gain, shift
from swapformer.model.residual.base import Residual
from swapformer.ranges import Fraction, Within


class Add(Residual):
    """x + F(x) (He et al. 2015, arXiv:1512.03385)."""

    def write(self, state: Tensor, update: Tensor) -> Tensor:
        return state + update


class Replace(Residual):
    """F(x): no residual connection."""

    carries = False

    def write(self, state: Tensor, update: Tensor) -> Tensor:
        return update


class Weighted(Residual):
    """α·x + (1 − α)·F(x); the identity path shrinks as α to the number of branches.

    Args:
        alpha: α, constant.

    Raises:
        ValueError: if α is not in [0, 1).
    """

    def __init__(self, dims: Dims, *, alpha: Annotated[float, Within("[0, 1)")]) -> None:
        super().__init__(dims)
        self.alpha, self.carries = alpha, alpha != 0

    def write(self, state: Tensor, update: Tensor) -> Tensor:
        return self.alpha * state + (1 - self.alpha) * update


class Scaled(Residual):
    """(stream · N^stream_power) · x + (branch · N^branch_power) · F(x), with N the number of layers.

    A branch scaled by 1/√N is branch_power = −½.

    Args:
        stream, branch: factors.
        stream_power, branch_power: powers of the number of layers.
    """

    def __init__(self, dims: Dims, *, stream: float, stream_power: float, branch: float, branch_power: float) -> None:
        super().__init__(dims)
        self.stream, self.carries = stream * dims.num_layers**stream_power, stream != 0
        self.branch = branch * dims.num_layers**branch_power

    def write(self, state: Tensor, update: Tensor) -> Tensor:
        return self.stream * state + self.branch * update


class DeepNorm(Residual):
    """α · x + F(x), with α by the depth of the stack, (2N)^¼ where there is one (Wang et al. 2022, arXiv:2203.00555).

    Goes with post-norm and model/init=deepnorm; see `deepnorm_factors`.
    """

    def __init__(self, dims: Dims) -> None:
        super().__init__(dims)
        self.stream, _ = deepnorm_factors(dims)

    def write(self, state: Tensor, update: Tensor) -> Tensor:
        return self.stream * state + update


class ReZero(Residual):
    """x + α · F(x), with a learned scalar α for each branch (Bachlechner et al. 2021, arXiv:2003.04887).

    Args:
        start: α at initialisation; 0 in the paper, which makes the network the identity.
    """

    def __init__(self, dims: Dims, *, start: float) -> None:
        super().__init__(dims)
        self.alpha = gain(1, start=start)

    def write(self, state: Tensor, update: Tensor) -> Tensor:
        return state + self.alpha * update


class LayerScale(Residual):
    """x + λ ⊙ F(x), with a learned λ [D] for each branch (Touvron et al. 2021, arXiv:2103.17239).

    Args:
        start: λ at initialisation; the paper takes 0.1 to 18 layers, 1e-5 to 24 and 1e-6 beyond.
    """

    def __init__(self, dims: Dims, *, start: float) -> None:
        super().__init__(dims)
        self.weight = gain(dims.d_model, start=start)

    def write(self, state: Tensor, update: Tensor) -> Tensor:
        return state + self.weight * update


class Gated(Residual):
    """(1 − g) ⊙ x + g ⊙ F(x) with g = σ(W·x + b), W [D, D] (highway: Srivastava et al. 2015, arXiv:1505.00387).

    Args:
        start: b at initialisation; negative numbers carry x through at first.
    """

    def __init__(self, dims: Dims, *, start: float) -> None:
        super().__init__(dims)
        self.gate = Linear(dims.d_model, dims.d_model, Role.GATE, bias=False)
        self.bias = shift(dims.d_model, start=start)

    def write(self, state: Tensor, update: Tensor) -> Tensor:
        return torch.lerp(state, update.to(state.dtype), (self.gate(state) + self.bias).sigmoid().to(state.dtype))


class StochasticDepth(Residual):
    """x + b·F(x) in training, b ~ Bernoulli(p) for each sequence; x + p·F(x) in evaluation.

    p = 1 − (l/L)(1 − p_L) falls linearly from the first branch (l = 1) to the last (l = L) of the model (Huang et al.
    2016, arXiv:1603.09382, whose b is drawn for each batch).

    Args:
        survival: p_L, the probability that the last branch is added.

    Raises:
        ValueError: if p_L is not in (0, 1].
    """

    def __init__(self, dims: Dims, *, survival: Fraction) -> None:
        super().__init__(dims)
        number, count = dims.layer * dims.branches + dims.branch + 1, dims.num_layers * dims.branches
        self.survival = 1 - number / count * (1 - survival)

    def write(self, state: Tensor, update: Tensor) -> Tensor:
        if not self.training:
            return state + self.survival * update
        # The default type may be another when a checkpointed layer is computed again, and draw other numbers.
        drawn = torch.rand(len(update), *[1] * (update.dim() - 1), device=update.device, dtype=state.dtype)
        return state + (drawn < self.survival) * update
