"""The norm slot's base."""

from __future__ import annotations

from abc import ABC, abstractmethod

from torch import Tensor, nn

from swapformer.model.dims import Dims
from swapformer.ranges import Declared


class Norm(Declared, nn.Module, ABC):
    """Base of the slot: x [B, T, D] → [B, T, D].

    Facts:
        normalises: its output is not x; false only for the absence of a norm.
        rescales: its output does not grow with x, so that it bounds the stream's size.
        crosses_positions: in training its statistics mix tokens, so that the future leaks into a causal model.
    """

    normalises: bool = True
    rescales: bool = True
    crosses_positions: bool = False

    @abstractmethod
    def forward(self, x: Tensor, padding: Tensor | None = None) -> Tensor:
        """x normed; `padding` [B|1, T] is True where a token is padding, None if no token is."""


class Identity(Norm):
    """No norm: x."""

    normalises = False
    rescales = False

    def __init__(self, dims: Dims) -> None:
        super().__init__()

    def forward(self, x: Tensor, padding: Tensor | None = None) -> Tensor:
        return x
