"""The normaliser slot's base."""

from __future__ import annotations

from abc import ABC, abstractmethod

from torch import Tensor, nn

from swapformer.model.dims import Dims
from swapformer.ranges import Declared


class Normaliser(Declared, nn.Module, ABC):
    """Base of the slot: masked logits [B, H, Q, K] → attention weights [B, H, Q, K].

    Facts:
        is_softmax: exactly softmax over the keys, which fused kernels compute.
        sums_to_one: the weights of a query that may attend to some key sum to 1.
    """

    is_softmax: bool = False
    sums_to_one: bool = True

    def __init__(self, dims: Dims) -> None:
        super().__init__()

    @abstractmethod
    def forward(self, logits_BHQK: Tensor) -> Tensor:
        """Weights [B, H, Q, K]; −∞ marks a forbidden key, and a query without allowed keys gets zero weights."""


def softmax(logits: Tensor) -> Tensor:
    """Softmax over the last axis; a row of −∞ alone gives zeros, and gradients without NaN."""
    blind = logits.isneginf().all(dim=-1, keepdim=True)
    return logits.masked_fill(blind, 0.0).softmax(dim=-1).masked_fill(blind, 0.0)
