"""The score slot's base."""

from __future__ import annotations

from abc import ABC, abstractmethod

from torch import Tensor, nn

from swapformer.model.dims import Dims
from swapformer.ranges import Declared


class Score(Declared, nn.Module, ABC):
    """Base of the slot: logits = scale · (raw(q, k) + position's scores) + position's bias.

    Facts:
        is_dot: raw is q·k and `scale` a number, which fused kernels compute.
        isotropic: rotating q and k alike leaves raw as it is, so that with a rotary encoding it depends on distances
            alone.
        of_directions: the lengths of q and k do not count.
        scale: a number, or a learned factor [H, 1, 1].
    """

    is_dot: bool = False
    isotropic: bool = True
    of_directions: bool = False
    scale: float | Tensor

    def __init__(self, dims: Dims) -> None:
        super().__init__()

    @abstractmethod
    def raw(self, q_BHQE: Tensor, k_BGKE: Tensor) -> Tensor:
        """Unscaled match of every query with every key of its head's group, [B, H, Q, K]; G divides H."""
