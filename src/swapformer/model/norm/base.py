"""The norm slot's base."""

from __future__ import annotations

from abc import ABC, abstractmethod

from torch import Tensor, nn

from swapformer.model.dims import Dims


class Norm(nn.Module, ABC):
    """Base of the slot: x [B, T, D] → [B, T, D].

    Facts:
        normalises: it does something to x; only the absence of a norm does not.
        rescales: what it gives does not grow with x, so that it holds the stream's size.
        crosses_places: in training its statistics mix places, so that the future leaks into a causal model.
    """

    normalises: bool = True
    rescales: bool = True
    crosses_places: bool = False

    @abstractmethod
    def forward(self, x: Tensor, padding: Tensor | None = None) -> Tensor:
        """x normed; `padding` [B|1, T] is True where a place is padding, None where no place is."""


class Identity(Norm):
    """No norm: x."""

    normalises = False
    rescales = False

    def __init__(self, dims: Dims) -> None:
        super().__init__()

    def forward(self, x: Tensor, padding: Tensor | None = None) -> Tensor:
        return x
