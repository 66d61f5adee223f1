"""Scores: dot products and their variants, distances, and scores with parameters."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional

from swapformer.model.dims import Dims
from swapformer.model.layers import Role, StackedLinear, gain
from swapformer.model.ops import head_products
from swapformer.model.score.base import Score
from swapformer.ranges import Positive


class Dot(Score):
    """raw = q·k, scale = E^exponent (Vaswani et al. 2017, arXiv:1706.03762: exponent −½).

    Args:
        exponent: power of the head's width; 0 leaves the product unscaled, as in T5.
    """

    is_dot = True

    def __init__(self, dims: Dims, *, exponent: float) -> None:
        super().__init__(dims)
        self.scale = float(dims.head_dim**exponent)

    def raw(self, q_BHQE: Tensor, k_BGKE: Tensor) -> Tensor:
        return head_products(q_BHQE, k_BGKE)


class Gaussian(Score):
    """raw = −½‖q − k‖², scale = E^exponent: under softmax a Gaussian kernel (Tsai et al. 2019, arXiv:1908.11775).

    Args:
        exponent: power of the head's width; −½ makes it the dot product less half the key's squared length.
    """

    def __init__(self, dims: Dims, *, exponent: float) -> None:
        super().__init__(dims)
        self.scale = float(dims.head_dim**exponent)

    def raw(self, q_BHQE: Tensor, k_BGKE: Tensor) -> Tensor:
        repeats = q_BHQE.shape[1] // k_BGKE.shape[1]
        squares_BHK = k_BGKE.square().sum(-1).repeat_interleave(repeats, dim=1)
        lengths = q_BHQE.square().sum(-1)[..., :, None] + squares_BHK[..., None, :]
        return head_products(q_BHQE, k_BGKE) - lengths / 2


class Softcap(Score):
    """scale · raw = cap · tanh(E^exponent · q·k / cap), bounded by ±cap (Gemma 2, 2024, arXiv:2408.00118).

    The cap bounds the product alone, without the terms that a position encoding adds.

    Args:
        exponent: power of the head's width inside the cap.
        cap: bound of the logits; 50 in Gemma 2.

    Raises:
        ValueError: if the cap is not positive.
    """

    def __init__(self, dims: Dims, *, exponent: float, cap: Positive) -> None:
        super().__init__(dims)
        self.scale = self.factor = float(dims.head_dim**exponent)
        self.cap = cap

    def raw(self, q_BHQE: Tensor, k_BGKE: Tensor) -> Tensor:
        bounded = (head_products(q_BHQE, k_BGKE) * (self.factor / self.cap)).tanh()
        return bounded * (self.cap / self.factor)


class LearnedDot(Score):
    """raw = q·k, scale = τ_h, one learned factor for each head that starts at E^exponent.

    With qk_norm l2 and its own factor left at 1 it is the temperature of Henry et al. 2020 (arXiv:2010.04245).

    Args:
        exponent: power of the head's width that τ starts from.
    """

    def __init__(self, dims: Dims, *, exponent: float) -> None:
        super().__init__(dims)
        self.scale = gain(dims.num_heads, 1, 1, start=float(dims.head_dim**exponent))

    def raw(self, q_BHQE: Tensor, k_BGKE: Tensor) -> Tensor:
        return head_products(q_BHQE, k_BGKE)


class Cosine(Score):
    """raw = q·k / (‖q‖‖k‖), scale = τ_h, one learned factor for each head (Liu et al. 2021, arXiv:2111.09883).

    Args:
        start: τ at initialisation, the largest logit; 10 in the paper.
        eps: floor of the lengths.
    """

    of_directions = True

    def __init__(self, dims: Dims, *, start: Positive, eps: Positive) -> None:
        super().__init__(dims)
        self.eps = eps
        self.scale = gain(dims.num_heads, 1, 1, start=start)

    def raw(self, q_BHQE: Tensor, k_BGKE: Tensor) -> Tensor:
        q, k = (functional.normalize(x, dim=-1, eps=self.eps) for x in (q_BHQE, k_BGKE))
        return head_products(q, k)


class Additive(Score):
    """raw = v_h · tanh(q + k), scale = E^exponent (Bahdanau et al. 2015, arXiv:1409.0473).

    The paper's W_a and U_a are the head's own query and key projections, and their biases its bias. It holds
    [B, H, Q, K, E] numbers at once: for short sequences.

    Args:
        exponent: power of the head's width; 0 in the paper.
    """

    isotropic = False

    def __init__(self, dims: Dims, *, exponent: float) -> None:
        super().__init__(dims)
        self.scale = float(dims.head_dim**exponent)
        self.weigh = StackedLinear(dims.num_heads, dims.head_dim, 1, Role.SCORE, bias=False)

    def raw(self, q_BHQE: Tensor, k_BGKE: Tensor) -> Tensor:
        q_BGRQE = q_BHQE.reshape(len(q_BHQE), k_BGKE.shape[1], -1, *q_BHQE.shape[2:])
        mixed = (q_BGRQE[..., :, None, :] + k_BGKE[:, :, None, None]).tanh().flatten(1, 2)
        return (mixed @ self.weigh.weight[:, None, 0, :, None]).squeeze(-1)


class Bilinear(Score):
    """raw = q · W_h k, scale = E^exponent (Luong et al. 2015, “general”, arXiv:1508.04025).

    Args:
        exponent: power of the head's width; 0 in the paper, −½ keeps the variance of the dot product.
    """

    isotropic = False

    def __init__(self, dims: Dims, *, exponent: float) -> None:
        super().__init__(dims)
        self.scale = float(dims.head_dim**exponent)
        self.mix = StackedLinear(dims.num_heads, dims.head_dim, dims.head_dim, Role.SCORE, bias=False)

    def raw(self, q_BHQE: Tensor, k_BGKE: Tensor) -> Tensor:
        return head_products(q_BHQE @ self.mix.weight, k_BGKE)
