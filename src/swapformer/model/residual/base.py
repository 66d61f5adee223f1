"""The residual slot's base."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor, nn

from swapformer.model.dims import Dims

State = Any
"""What a residual makes of the stream: one tensor [B, T, D], or several."""

Update = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Walk:
    """The way of a stream through its layers.

    Attributes:
        layers: state → state, one for each layer.
        updates: makes, for each residual branch from first to last, what it computes: what it reads → its update.
            Functions of two calls share nothing that is computed on the way.
        inputs: gives all tensors with gradients that the updates depend on beside what they read: parameters, a memory.
    """

    layers: Sequence[Callable[[State], State]]
    updates: Callable[[], Sequence[Update]]
    inputs: Callable[[], Sequence[Tensor]]


class Residual(nn.Module, ABC):
    """Base of the slot: a stream that is opened once, read and written by every branch, and closed once.

    One instance for each branch, which finds in `dims` which one it is; the first opens the stream and takes it through
    the layers, the last closes it.

    Facts:
        keeps: what its state is, which all layers of a model must agree on.
        recomputes: branches run again in the backward pass, so they must give the same again and leave nothing behind,
            and no norm may stand after a sum.
        carries: something of the stream goes past a branch; where it does not, the branch's update is all there is.
    """

    keeps: ClassVar[str] = "one tensor"
    recomputes: ClassVar[bool] = False
    carries: bool = True

    def __init__(self, dims: Dims) -> None:
        super().__init__()

    def open(self, x: Tensor) -> State:
        """The stream that starts from the embeddings x [B, T, D]."""
        return x

    def read(self, state: State) -> Tensor:
        """What a branch sees, [B, T, D]."""
        return state

    @abstractmethod
    def write(self, state: State, update: Tensor) -> State:
        """The stream after a branch's update [B, T, D]."""

    def normalise(self, state: State, norm: Update) -> State:
        """The stream after the norm that a placement puts behind a sum."""
        return norm(state)

    def close(self, state: State, norm: Update) -> Tensor:
        """The stream's output [B, T, D] after the final norm, which does nothing where the placement has none."""
        return norm(state)

    def run(self, state: State, walk: Walk) -> State:
        """The stream after all layers."""
        for layer in walk.layers:
            state = layer(state)
        return state
