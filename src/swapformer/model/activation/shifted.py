"""Activations made of other activations."""

from __future__ import annotations

from torch import Tensor

from swapformer.model.activation.base import Activation
from swapformer.model.dims import Dims
from swapformer.model.layers import shift


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
