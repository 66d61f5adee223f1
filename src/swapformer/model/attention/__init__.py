"""Attention variants."""

from swapformer.model.attention.base import Attention
from swapformer.model.attention.linear import LinearAttention
from swapformer.model.attention.multihead import MultiHead
from swapformer.model.attention.performer import Performer

__all__ = ["Attention", "LinearAttention", "MultiHead", "Performer"]
