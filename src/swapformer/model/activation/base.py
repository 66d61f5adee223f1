"""The activation slot's base."""

from __future__ import annotations

from abc import ABC
from typing import ClassVar

from torch import Tensor, nn

from swapformer.model.dims import Dims
from swapformer.ranges import Declared


class Activation(Declared, nn.Module, ABC):
    """Base of the slot: an elementwise function of a tensor of any shape.

    Facts:
        combines: names of the settings that are activations themselves.
    """

    combines: ClassVar[tuple[str, ...]] = ()

    def __init__(self, dims: Dims) -> None:
        super().__init__()


class Identity(Activation):
    """x: with model/ffn=glu the bilinear layer (Shazeer 2020, arXiv:2002.05202); with mlp a linear map of rank F."""

    def forward(self, x: Tensor) -> Tensor:
        return x
