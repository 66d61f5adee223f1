"""Normalisers: softmax and its variants, sparse normalisers, and the sigmoid."""

from __future__ import annotations

from collections.abc import Callable

import entmax
import torch
from torch import Tensor
from torch.nn import functional

from swapformer.model.dims import Dims
from swapformer.model.layers import gain
from swapformer.model.normaliser.base import Normaliser, softmax
from swapformer.model.ops import cumulative_sum, widen
from swapformer.ranges import Count, NonNegative


class Softmax(Normaliser):
    """w_j = exp(s_j) / Σ exp(s) over the allowed keys (Vaswani et al. 2017, arXiv:1706.03762)."""

    is_softmax = True

    def forward(self, logits_BHQK: Tensor) -> Tensor:
        return softmax(logits_BHQK)


class Softmax1(Normaliser):
    """w_j = exp(s_j) / (1 + Σ exp(s)): a query may attend to nothing (Miller 2023, “Attention is off by one”)."""

    sums_to_one = False

    def forward(self, logits_BHQK: Tensor) -> Tensor:
        return functional.pad(logits_BHQK, (1, 0)).softmax(dim=-1)[..., 1:]


class Sink(Normaliser):
    """w_j = exp(s_j) / (exp(a_h) + Σ exp(s)), with one learned logit a_h for each head (OpenAI 2025, arXiv:2508.10925).

    Args:
        start: a at initialisation; 0 starts as softmax1.
    """

    sums_to_one = False

    def __init__(self, dims: Dims, *, start: float) -> None:
        super().__init__(dims)
        self.sink = gain(dims.num_heads, start=start)

    def forward(self, logits_BHQK: Tensor) -> Tensor:
        sink = self.sink.to(logits_BHQK.dtype)[:, None, None].expand(*logits_BHQK.shape[:-1], 1)
        return torch.cat([sink, logits_BHQK], dim=-1).softmax(dim=-1)[..., 1:]


class TopK(Normaliser):
    """Softmax over the k largest logits of each query, ties with the k-th included, zero for the others.

    Zhao et al. 2019 (Explicit Sparse Transformer, arXiv:1912.11637). With k keys or fewer it is softmax.

    Args:
        keys: k.

    Raises:
        ValueError: if k is below 1.
    """

    def __init__(self, dims: Dims, *, keys: Count) -> None:
        super().__init__(dims)
        self.keys = keys

    def forward(self, logits_BHQK: Tensor) -> Tensor:
        least = logits_BHQK.topk(min(self.keys, logits_BHQK.shape[-1]), dim=-1).values[..., -1:]
        return softmax(logits_BHQK.masked_fill(logits_BHQK < least, float("-inf")))


_BEYOND = 4.0
"""A logit this far below the largest gets exactly no weight and gradient from sparsemax (1 suffices), entmax (2)."""


def _finite(logits: Tensor, normalise: Callable[..., Tensor]) -> Tensor:
    """`normalise` over the last axis in float32 or wider, with −∞ replaced by a logit that gets exactly zero."""
    wide = widen(logits)
    forbidden = wide.isneginf()
    blind = forbidden.all(dim=-1, keepdim=True)
    floor = wide.detach().masked_fill(blind, 0.0).amax(dim=-1, keepdim=True) - _BEYOND
    weights = normalise(wide.where(~forbidden, floor), dim=-1)
    return weights.masked_fill(blind, 0.0).to(logits.dtype)


def sparsemax(logits: Tensor, dim: int = -1) -> Tensor:
    """max(0, s_j − τ) with τ = (Σ s − 1) / k over the k largest, as `entmax.sparsemax` without a sum that CUDA refuses.

    The support is found first; what depends on the logits within it has their gradient.
    """
    logits = logits - logits.detach().amax(dim, keepdim=True)
    ranked, rank = _ranked(logits, dim)
    support = _support(logits, ranked, 1 + rank * ranked > cumulative_sum(ranked, dim), dim)
    share = 1 / support.sum(dim, keepdim=True).to(logits.dtype)
    return (logits - _mean(logits, support, dim) + share).clamp(min=0)


def entmax15(logits: Tensor, dim: int = -1) -> Tensor:
    """max(0, s_j/2 − τ)² with τ = m − √((1 − k v) / k) of the k largest halves' mean m and variance v, likewise."""
    half = (logits - logits.detach().amax(dim, keepdim=True)) / 2
    ranked, rank = _ranked(half, dim)
    mean, square = (cumulative_sum(each, dim) / rank for each in (ranked, ranked.square()))
    below = mean - ((1 - rank * (square - mean.square())) / rank).clamp(min=0).sqrt()
    support = _support(half, ranked, below <= ranked, dim)
    mean, count = _mean(half, support, dim), support.sum(dim, keepdim=True)
    spread = ((half - mean).square() * support).sum(dim, keepdim=True)
    return (half - mean + ((1 - spread) / count).clamp(min=0).sqrt()).clamp(min=0).square()


def _ranked(x: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    """Values from the largest down, without gradient, and their ranks from 1."""
    ranked = x.detach().sort(dim=dim, descending=True).values
    count = torch.arange(1, x.shape[dim] + 1, dtype=x.dtype, device=x.device)
    return ranked, count.view([-1 if axis == dim % x.ndim else 1 for axis in range(x.ndim)])


def _support(x: Tensor, ranked: Tensor, chosen: Tensor, dim: int) -> Tensor:
    """The values that are among as many of the largest as were chosen."""
    last = chosen.sum(dim, keepdim=True) - 1
    return x.detach() >= ranked.gather(dim, last)


def _mean(x: Tensor, support: Tensor, dim: int) -> Tensor:
    return (x * support).sum(dim, keepdim=True) / support.sum(dim, keepdim=True)


def _can_use_entmax(logits: Tensor) -> bool:
    """Whether the package `entmax` can compute it: its sums raise on CUDA, and torch cannot compile its backward."""
    return logits.device.type == "cpu" and not torch.compiler.is_compiling()


class Sparsemax(Normaliser):
    """The point of the simplex nearest to the logits, mostly zeros (Martins & Astudillo 2016, arXiv:1602.02068)."""

    def forward(self, logits_BHQK: Tensor) -> Tensor:
        return _finite(logits_BHQK, entmax.sparsemax if _can_use_entmax(logits_BHQK) else sparsemax)


class Entmax15(Normaliser):
    """w_j = max(0, s_j/2 − τ)², with τ such that Σ w = 1 (α = 1.5; Peters et al. 2019, arXiv:1905.05702)."""

    def forward(self, logits_BHQK: Tensor) -> Tensor:
        return _finite(logits_BHQK, entmax.entmax15 if _can_use_entmax(logits_BHQK) else entmax15)


class Sigmoid(Normaliser):
    """w_j = σ(s_j − power · ln n), n the keys that the query may attend to (Ramapuram et al. 2024, arXiv:2409.04431).

    The paper's bias is −ln of the length; counted by query, the weights of a token do not depend on later tokens or
    on padding.

    Args:
        power: 1 starts with weights that sum to about 1; 0 is the plain sigmoid.
    """

    sums_to_one = False

    def __init__(self, dims: Dims, *, power: NonNegative) -> None:
        super().__init__(dims)
        self.power = power

    def forward(self, logits_BHQK: Tensor) -> Tensor:
        keys = (~logits_BHQK.isneginf()).sum(dim=-1, keepdim=True).clamp(min=1)
        return (logits_BHQK - self.power * keys.to(logits_BHQK.dtype).log()).sigmoid()
