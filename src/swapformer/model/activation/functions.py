"""Activations: ReLU, GELU, SiLU and others, and the shifted form of each."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional

from swapformer.model.activation.base import Activation
from swapformer.model.dims import Dims
from swapformer.model.layers import shift
from swapformer.ranges import OpenShare


class ReLU(Activation):
    """max(0, x) (Nair & Hinton 2010)."""

    def forward(self, x: Tensor) -> Tensor:
        return functional.relu(x)


class LeakyReLU(Activation):
    """x above 0 and `slope` · x below it, so that no unit is without a gradient (Maas et al. 2013).

    Args:
        slope: the factor below 0.
    """

    def __init__(self, dims: Dims, *, slope: OpenShare) -> None:
        super().__init__(dims)
        self.slope = slope

    def forward(self, x: Tensor) -> Tensor:
        return functional.leaky_relu(x, self.slope)


class ReLU2(Activation):
    """max(0, x)² (So et al. 2021, Primer, arXiv:2109.08668)."""

    def forward(self, x: Tensor) -> Tensor:
        return functional.relu(x).square()


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


class Shifted(Activation):
    """f(x + a) + b, with an activation f and two scalars a and b that start at 0.

    In model/ffn=mlp they are the scalar biases that Fixup (Zhang et al. 2019, arXiv:1901.09321) has before the
    activation and before the second matrix. Choose f with `model/activation@model.activation.inner=relu`.

    Args:
        inner: f.
    """

    combines = ("inner",)

    def __init__(self, dims: Dims, *, inner: Activation) -> None:
        super().__init__(dims)
        self.inner = inner
        self.before, self.behind = shift(1), shift(1)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.inner(x + self.before)
        return out + self.behind
