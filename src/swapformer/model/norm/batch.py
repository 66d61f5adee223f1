"""Batch norm over the tokens of a batch that are not padding."""

from __future__ import annotations

import torch
from torch import Tensor

from swapformer.model.dims import Dims
from swapformer.model.layers import gain, shift
from swapformer.model.norm.base import Norm
from swapformer.model.ops import widen
from swapformer.ranges import Fraction, Positive


class BatchNorm(Norm):
    """γ · (x − μ) / √(σ² + ε) + β for each of the D features (Ioffe & Szegedy 2015, arXiv:1502.03167).

    In training μ and σ² are mean and population variance over the N tokens of the batch that are not padding; in
    evaluation they are running averages, r ← (1 − momentum) · r + momentum · statistic, the variance with N − 1.
    Statistics are taken in float32 or wider, over the batch of one forward: a batch in parts has those of each part.
    β exists where the model has biases. In training the output of a token depends on all tokens, later ones included.

    Args:
        eps: ε, in squared units of x.
        momentum: share of a new batch in the running averages, in (0, 1].
        affine: whether γ and β exist.

    Raises:
        ValueError: if `momentum` lies outside (0, 1].
    """

    crosses_positions = True
    running_mean: Tensor
    running_var: Tensor

    def __init__(self, dims: Dims, *, eps: Positive, momentum: Fraction, affine: bool) -> None:
        super().__init__()
        self.eps, self.momentum = eps, momentum
        self.weight = gain(dims.d_model, start=1.0) if affine else None
        self.bias = shift(dims.d_model) if affine and dims.bias else None
        self.register_buffer("running_mean", torch.zeros(dims.d_model))
        self.register_buffer("running_var", torch.ones(dims.d_model))

    def forward(self, x: Tensor, padding: Tensor | None = None) -> Tensor:
        wide = widen(x)
        mean, var = self._statistics(wide, padding) if self.training else (self.running_mean, self.running_var)
        normed = ((wide - mean) * (var + self.eps).rsqrt()).to(x.dtype)
        scaled = normed if self.weight is None else normed * self.weight
        return scaled if self.bias is None else scaled + self.bias

    def _statistics(self, x: Tensor, padding: Tensor | None) -> tuple[Tensor, Tensor]:
        """Mean and population variance [D] over the tokens that are not padding; updates the running averages."""
        if padding is None:
            weights = x.new_ones(*x.shape[:-1], 1)
        else:
            weights = (~padding)[..., None].expand(*x.shape[:-1], 1).to(x.dtype)
        count = weights.sum().clamp(min=1)
        mean = (x * weights).sum(dim=(0, 1)) / count
        var = ((x - mean).square() * weights).sum(dim=(0, 1)) / count
        with torch.no_grad():
            self.running_mean.lerp_(mean.to(self.running_mean.dtype), self.momentum)
            unbiased = var * count / (count - 1).clamp(min=1)
            self.running_var.lerp_(unbiased.to(self.running_var.dtype), self.momentum)
        return mean, var
