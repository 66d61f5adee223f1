"""Activations that are exactly zero for negative input."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional

from swapformer.model.activation.base import Activation


class ReLU(Activation):
    """max(0, x) (Nair & Hinton 2010)."""

    def forward(self, x: Tensor) -> Tensor:
        return functional.relu(x)


class ReLU2(Activation):
    """max(0, x)² (So et al. 2021, Primer, arXiv:2109.08668)."""

    def forward(self, x: Tensor) -> Tensor:
        return functional.relu(x).square()
