"""Performer: softmax attention estimated by random features."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import torch
from torch import Tensor, nn

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
from swapformer.model.ops import widen
from swapformer.model.pattern import Pattern
from swapformer.model.position import Position
from swapformer.random import stream
from swapformer.ranges import Count, Natural


class Performer(Attention):
    """Softmax attention whose kernel exp(q·k/√E) is estimated by M positive orthogonal random features (FAVOR+).

    exp(a·b) = E_w[exp(w·a − |a|²/2) · exp(w·b − |b|²/2)] for w ~ N(0, I), a = q·E^−¼, b = k·E^−¼ (Choromanski et al.
    2021, arXiv:2009.14794). The factor exp(|w|²/2 − c) moves from the keys to the queries, which leaves the keys with
    exp(c − |w − b|²/2), where c is the smallest |w|²/2, and 60 at most: no key's own length is subtracted, so nothing
    looks ahead. The queries' features are divided by the largest of their own query, which cancels. A key with |b| far
    above √E has features that float32 takes for zero, and is not seen. The directions w are drawn once for each layer,
    from a stream of their own. Sums as in linear attention. A rotation is applied before the features, whose estimate
    then depends on positions and not only on distances. No weights are dropped out. W_q, W_k, W_v [H·E, D], W_o
    [D, H·E].

    Args:
        features: M.
        seed: names the directions.

    Raises:
        ValueError: if M is below 1, heads are wider than 192, where features leave what float32 can tell apart, or the
            pattern is neither full nor plainly causal.
    """

    uses = ("pattern",)
    scoreless = "performer"
    caches = True
    isotropic = False
    places: ClassVar[Mapping[str, str]] = IMPLIED
    directions: Tensor

    def __init__(self, dims: Dims, *, pattern: Pattern, features: Count, seed: Natural) -> None:
        super().__init__()
        require_plain(pattern, "performer")
        if dims.head_dim > _WIDEST:
            raise ValueError(
                f"performer's random features are for heads of at most {_WIDEST} dimensions, but these have "
                f"{dims.head_dim}; raise model.num_heads, or use model/attention=linear."
            )
        self.head_dim, self.pattern = dims.head_dim, pattern
        self.query, self.key, self.value, self.out = projections(dims)
        self.dropout = nn.Dropout(dims.dropout)
        self.state_width = dims.num_heads * features * (dims.head_dim + 1)
        drawn = orthogonal_directions(features, dims.head_dim, stream("performer", seed, dims.layer))
        self.register_buffer("directions", drawn, persistent=False)

    def forward(self, x: Tensor, context: Context, position: Position, memory: Tensor | None = None) -> Tensor:
        context = context if context.cache is None or memory is not None else context.among_queries
        v = tap_heads(self, "hook_v", split_heads(self.value(x if memory is None else memory), self.head_dim))
        features = self._features(x, context, position, memory)
        mixed = mix_values(
            self,
            v,
            lambda: weighted_mean(features, features, v, context, self.pattern, self),
            lambda: implied_weights(features, features, context, self.pattern),
        )
        heads = mixed.to(x.dtype).transpose(1, 2).flatten(2)
        return self.dropout(project_heads(self, self.out, heads, v.shape[1]))

    def _features(self, x: Tensor, context: Context, position: Position, memory: Tensor | None) -> Pair:
        """The features of queries and keys, each [B, H, T, M]."""
        projected = self.query(x), self.key(x if memory is None else memory)
        q, k = (split_heads(y, self.head_dim) for y in projected)
        q, k = tap_heads(self, "hook_q", q), tap_heads(self, "hook_k", k)
        q, k = position.rotate(q, k, context)
        scale = self.head_dim**-0.25
        log_q, log_k = log_features(widen(q) * scale, widen(k) * scale, self.directions)
        # Any factor of a query's own cancels between numerator and denominator.
        return (log_q - log_q.detach().amax(-1, keepdim=True)).exp(), without_padding(log_k.exp(), context)


_WIDEST = 192
_MOST = 60.0
"""The largest logarithm of a factor on all keys, whose sums float32 must hold."""


def log_features(a: Tensor, b: Tensor, directions: Tensor) -> tuple[Tensor, Tensor]:
    """Logarithms of features [..., M] whose products sum to an unbiased estimate of exp(a·b), for a, b [..., E]."""
    w = directions.to(a.dtype)
    half_w, half_a, half_b = (y.square().sum(-1) / 2 for y in (w, a, b))
    half_w = half_w - half_w.min().clamp(max=_MOST)
    return (
        a @ w.mT - half_a[..., None] + half_w - float(torch.tensor(len(w), device="cpu").log()),
        b @ w.mT - half_b[..., None] - half_w,
    )


def orthogonal_directions(count: int, width: int, generator: torch.Generator) -> Tensor:
    """`count` vectors [count, width], each standard normal, orthogonal within groups of `width`."""
    groups = []
    for _ in range(-(-count // width)):
        square = torch.randn(width, width, generator=generator, device="cpu", dtype=torch.float64)
        lengths = torch.randn(width, width, generator=generator, device="cpu", dtype=torch.float64).norm(dim=1)
        rotation, upper = torch.linalg.qr(square)
        # The signs make the rotation uniformly distributed.
        groups.append(lengths[:, None] * (rotation * upper.diagonal().sign()).mT)
    return torch.cat(groups)[:count].float()
