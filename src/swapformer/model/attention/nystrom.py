"""Nyströmformer: softmax attention approximated through the means of segments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from swapformer.model.attention.base import Attention
from swapformer.model.attention.common import (
    IMPLIED,
    Hidden,
    for_each_document,
    masked,
    mix_values,
    project_heads,
    projections,
    require_full,
    split_heads,
    tap_heads,
)
from swapformer.model.context import Context
from swapformer.model.dims import Dims
from swapformer.model.layers import Role, StackedLinear
from swapformer.model.ops import widen, without_autocast
from swapformer.model.pattern import Pattern
from swapformer.model.position import Position
from swapformer.ranges import Count

Factors = tuple[Tensor, Tensor, Tensor]
"""Queries to landmarks [B, H, Q, M], the inverse between landmarks [B, H, M, M], landmarks to keys [B, H, M, K]."""


class Nystrom(Attention):
    """out = σ(q k̃ᵀ) σ(q̃ k̃ᵀ)⁺ σ(q̃ kᵀ) v + conv(v), σ(x) = softmax(x / √E), with M landmarks q̃, k̃ [M, E].

    Xiong et al. 2021 (arXiv:2102.03902). Landmarks are the means of M segments, as equal as the length lets them be:
    token number r of the n that are no padding belongs to segment ⌊r·M/n⌋; with fewer than M tokens each is a landmark.
    The inverse is iterated: Z ← ¼ Z (13 − S Z (15 − S Z (7 − S Z))) from Z = Sᵀ/(‖S‖₁‖S‖_∞), for each row and
    head. q and k are rotated before their means are taken. Time and memory O(T·M). No weights are dropped
    out. W_q, W_k, W_v [H·E, D], W_o [D, H·E].

    Args:
        landmarks: M.
        iterations: of the inverse; 6 in the paper.
        convolution: width, an odd number of positions, of the convolution over values, with one filter for each head;
            None for none.

    Raises:
        ValueError: if a number is below 1, the convolution's width is even, or the pattern is not full.
    """

    uses = ("pattern",)
    scoreless = "nystrom"
    sees_order = True
    causal_safe = False
    signed = True
    places: ClassVar[Mapping[str, str]] = IMPLIED

    def __init__(
        self, dims: Dims, *, pattern: Pattern, landmarks: Count, iterations: Count, convolution: Count | None
    ) -> None:
        super().__init__()
        require_full(pattern, "nystrom")
        self.pattern = pattern
        if convolution is not None and convolution % 2 == 0:
            raise ValueError(
                f"`convolution` of nystrom attention must be an odd number of positions, for it is centred, but it is "
                f"{convolution}; null leaves it out."
            )
        self.head_dim, self.landmarks, self.iterations = dims.head_dim, landmarks, iterations
        self.query, self.key, self.value, self.out = projections(dims)
        # Queries and values are at the same positions only where a sequence attends to itself.
        self.crosses = convolution is None
        self.filters: StackedLinear | None = None
        if convolution is not None:
            self.filters = StackedLinear(dims.num_heads, convolution, 1, Role.VALUE, bias=False)
        self.dropout = nn.Dropout(dims.dropout)

    def forward(self, x: Tensor, context: Context, position: Position, memory: Tensor | None = None) -> Tensor:
        q, k, v = self._project(x, context, position, memory)

        def mix(hidden_query: Hidden, hidden_key: Hidden) -> Tensor:
            near, inverse, far = self._factors(q, k, hidden_query, hidden_key)
            values = masked(v, hidden_key)
            mixed = near @ (inverse @ (far @ values))
            return mixed if self.filters is None else mixed + self._convolve(values)

        def weights(hidden_query: Hidden, hidden_key: Hidden) -> Tensor:
            """The product of the three matrices, and the convolution's band."""
            near, inverse, far = self._factors(q, k, hidden_query, hidden_key)
            implied = near @ inverse @ far
            if self.filters is None:
                return implied
            one_each = torch.eye(k.shape[2], dtype=k.dtype, device=k.device).expand(*k.shape[:2], -1, -1)
            return implied + self._convolve(masked(one_each, hidden_key))

        # The inverse has large entries that cancel, more of them the longer it is iterated.
        with without_autocast(x.device):
            mixed = mix_values(
                self, v, lambda: for_each_document(mix, context), lambda: for_each_document(weights, context)
            ).to(x.dtype)
        return self.dropout(project_heads(self, self.out, mixed.transpose(1, 2).flatten(2), v.shape[1]))

    def _project(
        self, x: Tensor, context: Context, position: Position, memory: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """q [B, H, Q, E] and k, v [B, H, K, E], rotated, in float32 or wider."""
        source = x if memory is None else memory
        q, k, v = (widen(split_heads(y, self.head_dim)) for y in (self.query(x), self.key(source), self.value(source)))
        q, k, v = tap_heads(self, "hook_q", q), tap_heads(self, "hook_k", k), tap_heads(self, "hook_v", v)
        return *position.rotate(q, k, context), v

    def _factors(self, q: Tensor, k: Tensor, hidden_query: Hidden, hidden_key: Hidden) -> Factors:
        """The three matrices whose product approximates the attention weights."""
        q, k = (y * self.head_dim**-0.25 for y in (q, k))
        of_query, of_key = (_means(y, hidden, self.landmarks) for y, hidden in ((q, hidden_query), (k, hidden_key)))
        q_means, k_means = of_query @ q, of_key @ k
        none_query, none_key = (~means[:, 0].any(-1) for means in (of_query, of_key))
        near = _softmax(q @ k_means.mT, none_key)
        between = masked(_softmax(q_means @ k_means.mT, none_key), none_query)
        far = _softmax(q_means @ k.mT, hidden_key)
        return near, inverse_by_iteration(between, self.iterations), far

    def _convolve(self, x: Tensor) -> Tensor:
        """Each head's filter over the positions of x [B, H, T, X]."""
        assert self.filters is not None
        taps = self.filters.weight.mT  # [H, width, 1]
        return functional.conv2d(x, taps[:, None].to(x.dtype), padding=(taps.shape[1] // 2, 0), groups=len(taps))


def inverse_by_iteration(s: Tensor, iterations: int) -> Tensor:
    """The pseudo-inverse of s [..., M, M], whose entries are not negative, by the iteration of Razavi et al. 2014."""
    largest = s.sum(-2).amax(-1) * s.sum(-1).amax(-1)
    z = s.mT / largest.clamp(min=torch.finfo(s.dtype).tiny)[..., None, None]
    one = torch.eye(s.shape[-1], dtype=s.dtype, device=s.device)
    for _ in range(iterations):
        product = s @ z
        z = 0.25 * z @ (13 * one - product @ (15 * one - product @ (7 * one - product)))
    return z


def _means(x: Tensor, hidden: Hidden, count: int) -> Tensor:
    """The matrix [B|1, 1, M, T] that takes the means of segments of the tokens of x that are not hidden."""
    taking = x.new_ones(1, x.shape[-2], dtype=torch.bool) if hidden is None else ~hidden
    rank = taking.cumsum(-1) - 1
    segment = rank * count // taking.sum(-1, keepdim=True).clamp(min=count)
    member = functional.one_hot(segment.masked_fill(~taking, count), count + 1)[..., :count].mT.to(x.dtype)
    return (member / member.sum(-1, keepdim=True).clamp(min=1))[:, None]


def _softmax(logits: Tensor, hidden: Hidden) -> Tensor:
    """softmax of [B, H, X, T] among the tokens that are not hidden; zeros where all are."""
    if hidden is None:
        return logits.softmax(-1)
    hidden = hidden[:, None, None, :]
    return logits.masked_fill(hidden, torch.finfo(logits.dtype).min).softmax(-1).masked_fill(hidden, 0.0)
