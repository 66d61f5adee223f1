"""The residual slot's base."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor, nn

from swapformer.model.dims import Dims
from swapformer.ranges import Declared

State = Any
"""The state of a stream: one tensor [B, T, D], or several."""

Update = Callable[[Tensor], Tensor]
"""A residual branch with its norms, or a norm alone: [B, T, D] → [B, T, D]."""


@dataclass(frozen=True)
class ForwardPass:
    """The computation of a stack in one forward pass.

    Attributes:
        layers: state → state, one function for each layer.
        updates: makes a function from input to update for each residual branch, first to last. The functions of two
            calls share no intermediate results.
        inputs: all other tensors with gradients that the updates depend on: parameters, and the output of an encoder.
    """

    layers: Sequence[Callable[[State], State]]
    updates: Callable[[], Sequence[Update]]
    inputs: Callable[[], Sequence[Tensor]]


class Residual(Declared, nn.Module, ABC):
    """Base of the slot: a stream that is opened once, read and written by every branch, and closed once.

    One instance for each branch, whose number is in `dims`; the first opens the stream and runs it through the layers,
    the last closes it.

    Facts:
        keeps: a name of its state, in which all layers of a model must agree.
        recomputes: branches run again in the backward pass, so they must give the same result again and store nothing,
            and the placement may have no norm after a sum.
        counts_updates: its weights are made for the number of updates before it, so all layers must have as many.
        reads_stream: a branch reads the state itself, so that what it reads can be replaced for all that follows.
        carries: part of the stream bypasses a branch; false if the stream after a branch is its update alone.
        needs_norms: the norms of a placement without which it is another residual.
    """

    keeps: ClassVar[str] = "one tensor"
    recomputes: ClassVar[bool] = False
    counts_updates: ClassVar[bool] = False
    reads_stream: ClassVar[bool] = True
    carries: bool = True
    needs_norms: ClassVar[tuple[str, ...]] = ()

    def __init__(self, dims: Dims) -> None:
        super().__init__()

    def open(self, x: Tensor) -> State:
        """The stream that starts from the embeddings x [B, T, D]."""
        return x

    def read(self, state: State) -> Tensor:
        """The input of a branch, [B, T, D]."""
        return state

    @abstractmethod
    def write(self, state: State, update: Tensor) -> State:
        """The stream after a branch's update [B, T, D]."""

    def normalise(self, state: State, norm: Update) -> State:
        """The stream after the norm that a placement puts after a sum."""
        return norm(state)

    def close(self, state: State, norm: Update) -> Tensor:
        """The stream's output [B, T, D] after the final norm, which is the identity if the placement has none."""
        return norm(state)

    def run(self, state: State, forward: ForwardPass) -> State:
        """The stream after all layers."""
        for layer in forward.layers:
            state = layer(state)
        return state
