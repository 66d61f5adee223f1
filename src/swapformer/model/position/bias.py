"""Position encodings that add a fixed or tabulated bias to the attention logits: ALiBi and T5."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from swapformer.model.context import Context
from swapformer.model.dims import Dims, Side
from swapformer.model.layers import Embedding, Role
from swapformer.model.ops import Constants
from swapformer.model.position.base import Position
from swapformer.ranges import Count, Positive, Several


def alibi_slopes(num_heads: int, decay: float) -> list[float]:
    """m_k = 2^(−decay·k/n), k = 1 … n, for n a power of two.

    Otherwise the slopes of the power of two below, then every second one of the next power's, as in the authors' code.
    """
    below = 2 ** int(math.log2(num_heads))
    slopes: list[float] = [2.0 ** (-decay * k / below) for k in range(1, below + 1)]
    following = [2.0 ** (-decay * k / (2 * below)) for k in range(1, 2 * below + 1, 2)]
    return slopes + following[: num_heads - below]


class ALiBi(Position):
    """bias_h(i, j) = −m_h · |p_i − p_j| after the scaling, with fixed slopes m_h; nothing is added to the embeddings.

    Press et al. 2022, arXiv:2108.12409. Under a causal mask |p_i − p_j| is p_i − p_j; without one it is symmetric.

    Args:
        decay: the smallest slope is 2^(−decay); 8 in the paper.
    """

    has_bias = True
    reads = ("num_heads",)

    def __init__(self, dims: Dims, *, decay: Positive) -> None:
        super().__init__(dims)
        self.slopes, self.constants = alibi_slopes(dims.num_heads, decay), Constants()

    def bias(self, context: Context) -> Tensor:
        slope_H = self.constants.of(tuple(self.slopes), context.dtype, context.distance.device)
        return -slope_H[:, None, None] * context.distance.abs()[:, None]


class T5(Position):
    """bias_h(i, j) = b[bucket(p_j − p_i), h] after the scaling, one table [buckets, H] for all layers.

    Raffel et al. 2020, arXiv:1910.10683. Half of the buckets hold exact distances, the other half grow
    logarithmically up to `max_distance`, beyond which all distances share the last. Where training does not reach that
    far, its last buckets are never trained, and longer texts read them. A bidirectional table spends half
    of its buckets on each direction; a causal one puts every later key into bucket 0. T5 itself does not scale its
    logits: for its exact form combine with `model.score.exponent=0`.

    Args:
        buckets: rows of the table.
        max_distance: distance from which all share the last bucket, in positions.
        bidirectional: whether later keys have buckets of their own; None for the stack's kind: an encoder's is
            bidirectional, a decoder's is not.

    Raises:
        ValueError: if the buckets cannot be halved, or `max_distance` lies within the exact ones.
    """

    has_bias = True
    reads = ("num_heads",)

    def __init__(
        self,
        dims: Dims,
        *,
        buckets: Several,
        max_distance: Count,
        bidirectional: bool | None,
    ) -> None:
        super().__init__(dims)
        bidirectional = dims.side is Side.ENCODER if bidirectional is None else bidirectional
        exact = buckets // (4 if bidirectional else 2)
        parts = 4 if bidirectional else 2
        if buckets < parts or buckets % (parts // 2) or max_distance <= exact:
            raise ValueError(
                f"t5 needs at least {parts} buckets, an even number where it is bidirectional, and a `max_distance` "
                f"above the {exact} exact ones, but buckets={buckets} and max_distance={max_distance}."
            )
        self.buckets, self.max_distance, self.bidirectional = buckets, max_distance, bidirectional
        self.table = Embedding(buckets, dims.num_heads, Role.POSITION_BIAS)

    def bucket(self, distance: Tensor) -> Tensor:
        """The bucket of each key position minus query position, int64, same shape."""
        buckets, offset = self.buckets, torch.zeros_like(distance)
        if self.bidirectional:
            buckets //= 2
            offset = (distance > 0) * buckets
            away = distance.abs()
        else:
            away = (-distance).clamp(min=0)
        exact = buckets // 2
        growth = torch.log(away.clamp(min=1).float() / exact) / math.log(self.max_distance / exact)
        logarithmic = (exact + (growth * (buckets - exact)).long()).clamp(max=buckets - 1)
        return offset + torch.where(away < exact, away, logarithmic)

    def bias(self, context: Context) -> Tensor:
        return self.table(self.bucket(context.distance)).permute(0, 3, 1, 2)
