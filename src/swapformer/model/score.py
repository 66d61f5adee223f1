"""Scores: how well a query and a key match, before masking."""

from __future__ import annotations

from abc import ABC, abstractmethod

from torch import Tensor, nn

from swapformer.model.dims import Dims


class Score(nn.Module, ABC):
    """Base of the slot: logits = scale · (raw(q, k) + position's scores) + position's bias.

    Facts:
        is_dot: raw is q·k and `scale` a number, which fused kernels compute.
    """

    is_dot: bool = False
    scale: float

    def __init__(self, dims: Dims) -> None:
        super().__init__()

    @abstractmethod
    def raw(self, q_BHQE: Tensor, k_BHKE: Tensor) -> Tensor:
        """Unscaled match of every query with every key, [B, H, Q, K]."""


class Dot(Score):
    """raw = q·k, scale = E^exponent (Vaswani et al. 2017, arXiv:1706.03762: exponent −½).

    Args:
        exponent: power of the head's width; 0 leaves the product unscaled, as in T5.
    """

    is_dot = True

    def __init__(self, dims: Dims, *, exponent: float) -> None:
        super().__init__(dims)
        self.scale = float(dims.head_dim**exponent)

    def raw(self, q_BHQE: Tensor, k_BHKE: Tensor) -> Tensor:
        return q_BHQE @ k_BHKE.transpose(-1, -2)
