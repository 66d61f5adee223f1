"""Norms of each token only: LayerNorm, RMSNorm, ScaleNorm, and the parts DyT and Shift instead of a norm."""

from __future__ import annotations

import math

from torch import Tensor
from torch.nn import functional

from swapformer.model.dims import Dims
from swapformer.model.layers import gain, shift
from swapformer.model.norm.base import Norm
from swapformer.model.ops import widen
from swapformer.ranges import Positive


class LayerNorm(Norm):
    """γ · (x − mean) / √(variance + ε) + β, with the population variance over D (Ba et al. 2016, arXiv:1607.06450).

    β exists where the model has biases.

    Args:
        eps: ε, in squared units of x.
        affine: whether γ and β exist.
    """

    def __init__(self, dims: Dims, *, eps: Positive, affine: bool) -> None:
        super().__init__()
        self.eps = eps
        self.weight = gain(dims.d_model, start=1.0) if affine else None
        self.bias = shift(dims.d_model) if affine and dims.bias else None

    def forward(self, x: Tensor, padding: Tensor | None = None) -> Tensor:
        return functional.layer_norm(x, x.shape[-1:], self.weight, self.bias, self.eps)


class RMSNorm(Norm):
    """γ · x / √(mean(x²) + ε) over D, statistics in float32 or wider (Zhang & Sennrich 2019, arXiv:1910.07467).

    Args:
        eps: ε, in squared units of x.
        affine: whether γ exists.
    """

    def __init__(self, dims: Dims, *, eps: Positive, affine: bool) -> None:
        super().__init__()
        self.eps = eps
        self.weight = gain(dims.d_model, start=1.0) if affine else None

    def forward(self, x: Tensor, padding: Tensor | None = None) -> Tensor:
        if x.element_size() >= 4:
            return functional.rms_norm(x, x.shape[-1:], self.weight, self.eps)
        normed = functional.rms_norm(x.float(), x.shape[-1:], None, self.eps).to(x.dtype)
        return normed if self.weight is None else normed * self.weight


class ScaleNorm(Norm):
    """g · x / max(‖x‖, ε), with one scalar g that starts at √D (Nguyen & Salazar 2019, arXiv:1910.05895).

    Args:
        eps: ε, in units of x.
        affine: whether g is learned; it stays √D if not.
    """

    def __init__(self, dims: Dims, *, eps: Positive, affine: bool) -> None:
        super().__init__()
        self.eps = eps
        self.scale = math.sqrt(dims.d_model)
        self.weight = gain(1, start=self.scale) if affine else None

    def forward(self, x: Tensor, padding: Tensor | None = None) -> Tensor:
        direction = functional.normalize(widen(x), dim=-1, eps=self.eps).to(x.dtype)
        return direction * (self.scale if self.weight is None else self.weight)


class DyT(Norm):
    """Dynamic tanh, γ · tanh(αx) + β, instead of a norm (Zhu et al. 2025, arXiv:2503.10622).

    α is one scalar; γ and β have D entries, and β exists where the model has biases.

    Args:
        start: α at initialisation, in inverse units of x; ½ in the paper.
        affine: whether α, γ and β are learned; if not, tanh(start · x).
    """

    def __init__(self, dims: Dims, *, start: Positive, affine: bool) -> None:
        super().__init__()
        self.start = start
        self.alpha = gain(1, start=start) if affine else None
        self.weight = gain(dims.d_model, start=1.0) if affine else None
        self.bias = shift(dims.d_model) if affine and dims.bias else None

    def forward(self, x: Tensor, padding: Tensor | None = None) -> Tensor:
        squashed = ((self.start if self.alpha is None else self.alpha) * x).tanh()
        scaled = squashed if self.weight is None else squashed * self.weight
        return scaled if self.bias is None else scaled + self.bias


class Shift(Norm):
    """x + b, with one scalar b that starts at 0: a part instead of a norm.

    With model/placement=pre it is the scalar bias that Fixup (Zhang et al. 2019, arXiv:1901.09321) has before the first
    matrices of each branch and before the head, where the authors' Transformer puts it instead of LayerNorm.
    """

    rescales = False

    def __init__(self, dims: Dims) -> None:
        super().__init__()
        self.bias = shift(1)

    def forward(self, x: Tensor, padding: Tensor | None = None) -> Tensor:
        return x + self.bias
