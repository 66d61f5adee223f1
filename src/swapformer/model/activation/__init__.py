"""Activations: elementwise functions of the feed-forward layer."""

from swapformer.model.activation.base import Activation, Identity
from swapformer.model.activation.rectified import ReLU, ReLU2
from swapformer.model.activation.shifted import Shifted
from swapformer.model.activation.smooth import GELU, GELUTanh, Mish, Sigmoid, SiLU, Tanh

__all__ = ["GELU", "Activation", "GELUTanh", "Identity", "Mish", "ReLU", "ReLU2", "Shifted", "SiLU", "Sigmoid", "Tanh"]
