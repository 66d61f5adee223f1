"""Normalisers: from masked logits to attention weights."""

from __future__ import annotations

from abc import ABC, abstractmethod

from torch import Tensor, nn

from swapformer.model.dims import Dims


class Normaliser(nn.Module, ABC):
    """Base of the slot.

    Facts:
        is_softmax: exactly softmax over the keys, which fused kernels compute.
    """

    is_softmax: bool = False

    def __init__(self, dims: Dims) -> None:
        super().__init__()

    @abstractmethod
    def forward(self, logits_BHQK: Tensor) -> Tensor:
        """Weights [B, H, Q, K]; −∞ marks a forbidden key, and a row of nothing else gets zero weights."""


class Softmax(Normaliser):
    """w_j = exp(s_j) / Σ exp(s) over the allowed keys (Vaswani et al. 2017, arXiv:1706.03762)."""

    is_softmax = True

    def forward(self, logits_BHQK: Tensor) -> Tensor:
        blind = logits_BHQK.isneginf().all(dim=-1, keepdim=True)
        return logits_BHQK.masked_fill(blind, 0.0).softmax(dim=-1).masked_fill(blind, 0.0)
