"""Activations: elementwise non-linearities of the feed-forward layer."""

from __future__ import annotations

from abc import ABC

from torch import Tensor, nn
from torch.nn import functional

from swapformer.model.dims import Dims


class Activation(nn.Module, ABC):
    """Base of the slot: elementwise, any shape."""

    def __init__(self, dims: Dims) -> None:
        super().__init__()


class ReLU(Activation):
    """max(0, x) (Nair & Hinton 2010)."""

    def forward(self, x: Tensor) -> Tensor:
        return functional.relu(x)


class GELU(Activation):
    """x · Φ(x), with Φ the standard normal distribution function (Hendrycks & Gimpel 2016, arXiv:1606.08415)."""

    def forward(self, x: Tensor) -> Tensor:
        return functional.gelu(x)


class GELUTanh(Activation):
    """½x · (1 + tanh(√(2/π) · (x + 0.044715x³))), the approximation of GELU in GPT-2 (arXiv:1606.08415)."""

    def forward(self, x: Tensor) -> Tensor:
        return functional.gelu(x, approximate="tanh")


class SiLU(Activation):
    """x · σ(x), also called swish (Elfwing et al. 2017, arXiv:1702.03118; Ramachandran et al. 2017)."""

    def forward(self, x: Tensor) -> Tensor:
        return functional.silu(x)
