"""Activations: elementwise functions of the feed-forward layer."""

from swapformer.model.activation.base import Activation, Identity
from swapformer.model.activation.functions import (
    GELU,
    GELUTanh,
    LeakyReLU,
    Mish,
    ReLU,
    ReLU2,
    Shifted,
    Sigmoid,
    SiLU,
    Tanh,
)

__all__ = [
    "GELU",
    "Activation",
    "GELUTanh",
    "Identity",
    "LeakyReLU",
    "Mish",
    "ReLU",
    "ReLU2",
    "Shifted",
    "SiLU",
    "Sigmoid",
    "Tanh",
]
