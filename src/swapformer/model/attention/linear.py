"""Linear attention: a kernel of features instead of the softmax, at a cost that grows linearly with the length."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from torch import Tensor, nn
from torch.nn import functional

from swapformer.model.attention.base import Attention
from swapformer.model.attention.common import (
    IMPLIED,
    mix_values,
    project_heads,
    projections,
    require_plain,
    split_heads,
    tap_heads,
)
from swapformer.model.attention.linear_ops import Pair, implied_weights, weighted_mean, without_padding
from swapformer.model.context import Context
from swapformer.model.dims import Dims
from swapformer.model.extension import Convolution
from swapformer.model.ops import widen
from swapformer.model.pattern import Pattern
from swapformer.model.position import Position
from swapformer.ranges import Count


class LinearAttention(Attention):
    """out_i = Σ_j (φ(q_i)·φ(k_j)) v_j / Σ_j φ(q_i)·φ(k_j), φ(x) = elu(x) + 1, over all j, or j ≤ i.

    Katharopoulos et al. 2020 (arXiv:2006.16236). The causal form sums Σ φ(k_j) v_jᵀ [E, E] from chunk to chunk: time
    and memory O(T·E²). Padding has φ(k) = 0. A position rotates φ(q) and φ(k) only in the numerator (Su et
    al. 2021, arXiv:2104.09864, equation 19). With several documents in a row, or fewer queries than keys, the sums are
    taken pair by pair. No weights are dropped out. W_q, W_k, W_v [H·E, D], W_o [D, H·E].

    Args:
        convolution: positions that a causal convolution of q, k and v reads, as the extension `convolution` does for
            other attentions; with 1 there is no convolution.

    Raises:
        ValueError: if the pattern is neither full nor plainly causal, or `convolution` is below 1.
    """

    uses = ("pattern",)
    scoreless = "linear"
    caches = True
    signed = True  # a position rotates the numerator alone
    places: ClassVar[Mapping[str, str]] = IMPLIED

    def __init__(self, dims: Dims, *, pattern: Pattern, convolution: Count = 1) -> None:
        super().__init__()
        require_plain(pattern, "linear")
        width = dims.num_heads * dims.head_dim
        self.convolution = Convolution(dims, width=convolution)
        self.sees_order = convolution > 1
        self.head_dim, self.pattern = dims.head_dim, pattern
        self.query, self.key, self.value, self.out = projections(dims)
        if convolution > 1:
            self.filters = self.convolution.modules(width, width, width)["filters"]
        self.dropout = nn.Dropout(dims.dropout)
        self.state_width = width * (dims.head_dim + 1) + 3 * (convolution - 1) * width

    def forward(self, x: Tensor, context: Context, position: Position, memory: Tensor | None = None) -> Tensor:
        keyed = x if memory is None else memory
        projected = self.query(x), self.key(keyed), self.value(keyed)
        if self.sees_order:
            projected = self.convolution.project(projected, context, crosses=memory is not None)
        context = context if context.cache is None or memory is not None else context.among_queries
        v = tap_heads(self, "hook_v", split_heads(projected[2], self.head_dim))
        features = self._features(*projected[:2], context, position)
        mixed = mix_values(
            self,
            v,
            lambda: weighted_mean(*features, v, context, self.pattern, self),
            lambda: implied_weights(*features, context, self.pattern),
        )
        heads = mixed.to(x.dtype).transpose(1, 2).flatten(2)
        return self.dropout(project_heads(self, self.out, heads, v.shape[1]))

    def _features(self, q: Tensor, k: Tensor, context: Context, position: Position) -> tuple[Pair, Pair]:
        """φ(q) and φ(k), each [B, H, T, E], and the two rotated by the position."""
        q, k = (
            functional.elu(widen(tap_heads(self, place, split_heads(y, self.head_dim)))) + 1
            for place, y in (("hook_q", q), ("hook_k", k))
        )
        k = without_padding(k, context)
        return (q, k), position.rotate(q, k, context)
