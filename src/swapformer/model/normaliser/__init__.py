"""Normalisers: from masked logits to attention weights."""

from swapformer.model.normaliser.base import Normaliser
from swapformer.model.normaliser.exponential import Sink, Softmax, Softmax1, TopK
from swapformer.model.normaliser.sparse import Entmax15, Sigmoid, Sparsemax

__all__ = ["Entmax15", "Normaliser", "Sigmoid", "Sink", "Softmax", "Softmax1", "Sparsemax", "TopK"]
