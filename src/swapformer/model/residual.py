"""Residual streams: how a branch reads what came before and adds its update."""

from __future__ import annotations

from abc import ABC, abstractmethod

from torch import Tensor, nn

from swapformer.model.dims import Dims
from swapformer.model.layers import gain


class Residual(nn.Module, ABC):
    """Base of the slot: a stream that is opened once, read and written by every branch, and closed once.

    One instance for each branch; the first opens the stream and the last closes it.
    """

    def __init__(self, dims: Dims) -> None:
        super().__init__()

    def open(self, x: Tensor) -> Tensor:
        """The stream that starts from the embeddings x [B, T, D]."""
        return x

    def read(self, state: Tensor) -> Tensor:
        """What a branch sees, [B, T, D]."""
        return state

    @abstractmethod
    def write(self, state: Tensor, update: Tensor) -> Tensor:
        """The stream after a branch's update [B, T, D]."""

    def close(self, state: Tensor) -> Tensor:
        """The stream's output, [B, T, D]."""
        return state


class Add(Residual):
    """x + F(x) (He et al. 2015, arXiv:1512.03385)."""

    def write(self, state: Tensor, update: Tensor) -> Tensor:
        return state + update


class Scaled(Residual):
    """(stream · N^stream_power) · x + (branch · N^branch_power) · F(x), with N the number of layers.

    DeepNorm's α = (2N)^¼ on the stream (Wang et al. 2022, arXiv:2203.00555) is stream = 2^¼, stream_power = ¼; a branch
    scaled by 1/√N is branch_power = −½.

    Args:
        stream, branch: factors.
        stream_power, branch_power: powers of the number of layers.
    """

    def __init__(self, dims: Dims, *, stream: float, stream_power: float, branch: float, branch_power: float) -> None:
        super().__init__(dims)
        self.stream = stream * dims.num_layers**stream_power
        self.branch = branch * dims.num_layers**branch_power

    def write(self, state: Tensor, update: Tensor) -> Tensor:
        return self.stream * state + self.branch * update


class ReZero(Residual):
    """x + α · F(x), with a learned scalar α for each branch (Bachlechner et al. 2021, arXiv:2003.04887).

    Args:
        start: α at initialisation; 0 in the paper, which makes the network the identity.
    """

    def __init__(self, dims: Dims, *, start: float) -> None:
        super().__init__(dims)
        self.alpha = gain(1, start=start)

    def write(self, state: Tensor, update: Tensor) -> Tensor:
        return state + self.alpha * update
