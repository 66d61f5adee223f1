"""Scores without parameters."""

from __future__ import annotations

from torch import Tensor

from swapformer.model.dims import Dims
from swapformer.model.score.base import Score


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


class Gaussian(Score):
    """raw = −½‖q − k‖², scale = E^exponent: under softmax a Gaussian kernel (Tsai et al. 2019, arXiv:1908.11775).

    Args:
        exponent: power of the head's width; −½ makes it the dot product less half the key's squared length.
    """

    def __init__(self, dims: Dims, *, exponent: float) -> None:
        super().__init__(dims)
        self.scale = float(dims.head_dim**exponent)

    def raw(self, q_BHQE: Tensor, k_BHKE: Tensor) -> Tensor:
        lengths = q_BHQE.square().sum(-1)[..., :, None] + k_BHKE.square().sum(-1)[..., None, :]
        return q_BHQE @ k_BHKE.transpose(-1, -2) - lengths / 2


class Softcap(Score):
    """scale · raw = cap · tanh(E^exponent · q·k / cap), bounded by ±cap (Gemma 2, 2024, arXiv:2408.00118).

    The cap holds the product alone; what a position encoding adds stays outside.

    Args:
        exponent: power of the head's width inside the cap.
        cap: bound of the logits; 50 in Gemma 2.

    Raises:
        ValueError: if the cap is not positive.
    """

    def __init__(self, dims: Dims, *, exponent: float, cap: float) -> None:
        super().__init__(dims)
        if cap <= 0:
            raise ValueError(f"`cap` of a softcap score must be positive, but it is {cap}.")
        self.scale = self.factor = float(dims.head_dim**exponent)
        self.cap = cap

    def raw(self, q_BHQE: Tensor, k_BHKE: Tensor) -> Tensor:
        bounded = (q_BHQE @ k_BHKE.transpose(-1, -2) * (self.factor / self.cap)).tanh()
        return bounded * (self.cap / self.factor)
