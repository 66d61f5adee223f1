"""Normalisers that are not ratios of exponentials."""

from __future__ import annotations

from collections.abc import Callable

import entmax
from torch import Tensor

from swapformer.model.dims import Dims
from swapformer.model.normaliser.base import Normaliser

_BEYOND = 4.0
"""A logit this far below the largest gets exactly no weight and gradient from sparsemax (1 suffices), entmax (2)."""


def _finite(logits: Tensor, normalise: Callable[..., Tensor]) -> Tensor:
    """`normalise` over the last axis in float32 or wider, with −∞ replaced by a logit that gets exactly zero."""
    wide = logits if logits.element_size() >= 4 else logits.float()
    forbidden = wide.isneginf()
    blind = forbidden.all(dim=-1, keepdim=True)
    floor = wide.detach().masked_fill(blind, 0.0).amax(dim=-1, keepdim=True) - _BEYOND
    weights = normalise(wide.where(~forbidden, floor), dim=-1)
    return weights.masked_fill(blind, 0.0).to(logits.dtype)


class Sparsemax(Normaliser):
    """The point of the simplex nearest to the logits, mostly zeros (Martins & Astudillo 2016, arXiv:1602.02068)."""

    def forward(self, logits_BHQK: Tensor) -> Tensor:
        return _finite(logits_BHQK, entmax.sparsemax)


class Entmax15(Normaliser):
    """w_j = max(0, s_j/2 − τ)², with τ such that Σ w = 1 (α = 1.5; Peters et al. 2019, arXiv:1905.05702)."""

    def forward(self, logits_BHQK: Tensor) -> Tensor:
        return _finite(logits_BHQK, entmax.entmax15)


class Sigmoid(Normaliser):
    """w_j = σ(s_j − power · ln n), n the keys that the query may see (Ramapuram et al. 2024, arXiv:2409.04431).

    The paper's bias is −ln of the length; counted by query, a place's weights do not depend on what comes after it or
    on padding.

    Args:
        power: 1 starts with weights that sum to about 1; 0 is the plain sigmoid.
    """

    sums_to_one = False

    def __init__(self, dims: Dims, *, power: float) -> None:
        super().__init__(dims)
        self.power = power

    def forward(self, logits_BHQK: Tensor) -> Tensor:
        seen = (~logits_BHQK.isneginf()).sum(dim=-1, keepdim=True).clamp(min=1)
        return (logits_BHQK - self.power * seen.to(logits_BHQK.dtype).log()).sigmoid()
