"""Norms of queries, keys and values, applied before rotation."""

from __future__ import annotations

from torch import Tensor, nn

from swapformer.model.dims import Dims


class QKNorm(nn.Module):
    """Base of the slot: leaves queries [B, H, Q, E], keys and values [B, G, K, E] as they are."""

    def __init__(self, dims: Dims) -> None:
        super().__init__()

    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return q, k, v
