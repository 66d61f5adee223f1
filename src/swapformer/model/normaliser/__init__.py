"""Normalisers: functions from masked logits to attention weights."""

from swapformer.model.normaliser.base import Normaliser
from swapformer.model.normaliser.functions import Entmax15, Sigmoid, Sink, Softmax, Softmax1, Sparsemax, TopK

__all__ = ["Entmax15", "Normaliser", "Sigmoid", "Sink", "Softmax", "Softmax1", "Sparsemax", "TopK"]
