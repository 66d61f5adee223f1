"""Norms over the width of the stream."""

from __future__ import annotations

from abc import ABC

from torch import Tensor, nn
from torch.nn import functional

from swapformer.model.dims import Dims, require_positive, require_presence
from swapformer.model.layers import gain, shift


class Norm(nn.Module, ABC):
    """Base of the slot: x [..., D] → [..., D].

    Facts:
        is_identity: x comes out as it went in.
    """

    is_identity: bool = False


class Identity(Norm):
    """No norm: x."""

    is_identity = True

    def __init__(self, dims: Dims) -> None:
        super().__init__()

    def forward(self, x: Tensor) -> Tensor:
        return x


class LayerNorm(Norm):
    """γ · (x − mean) / √(variance + ε) + β, with the population variance over D (Ba et al. 2016, arXiv:1607.06450).

    β exists where the model has biases.

    Args:
        eps: ε, in squared units of x.
        affine: whether γ and β exist.
    """

    def __init__(self, dims: Dims, *, eps: float, affine: bool) -> None:
        super().__init__()
        require_positive(eps=eps)
        require_presence(affine=affine)
        self.eps = eps
        self.weight = gain(dims.d_model, start=1.0) if affine else None
        self.bias = shift(dims.d_model) if affine and dims.bias else None

    def forward(self, x: Tensor) -> Tensor:
        return functional.layer_norm(x, x.shape[-1:], self.weight, self.bias, self.eps)


class RMSNorm(Norm):
    """γ · x / √(mean(x²) + ε) over D, statistics in float32 or wider (Zhang & Sennrich 2019, arXiv:1910.07467).

    Args:
        eps: ε, in squared units of x.
        affine: whether γ exists.
    """

    def __init__(self, dims: Dims, *, eps: float, affine: bool) -> None:
        super().__init__()
        require_positive(eps=eps)
        require_presence(affine=affine)
        self.eps = eps
        self.weight = gain(dims.d_model, start=1.0) if affine else None

    def forward(self, x: Tensor) -> Tensor:
        wide = x if x.element_size() >= 4 else x.float()
        normed = functional.rms_norm(wide, x.shape[-1:], None, self.eps).to(x.dtype)
        return normed if self.weight is None else normed * self.weight
