"""Smooth activations."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional

from swapformer.model.activation.base import Activation


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


class Mish(Activation):
    """x · tanh(ln(1 + exp x)) (Misra 2019, arXiv:1908.08681)."""

    def forward(self, x: Tensor) -> Tensor:
        return functional.mish(x)


class Tanh(Activation):
    """tanh x."""

    def forward(self, x: Tensor) -> Tensor:
        return x.tanh()


class Sigmoid(Activation):
    """1 / (1 + exp(−x)): with model/ffn=glu the gate of Dauphin et al. (2017, arXiv:1612.08083)."""

    def forward(self, x: Tensor) -> Tensor:
        return x.sigmoid()
