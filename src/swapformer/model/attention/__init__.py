"""Attention variants."""

from swapformer.model.attention.base import Attention
from swapformer.model.attention.multihead import MultiHead

__all__ = ["Attention", "MultiHead"]
