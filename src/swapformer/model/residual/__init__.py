"""Residual streams: how a branch reads its input from the stream and adds its update."""

from swapformer.model.residual.base import ForwardPass, Residual
from swapformer.model.residual.multi_stream import Dense, DenseNet, HyperConnections, ResiDual
from swapformer.model.residual.reversible import Reversible
from swapformer.model.residual.single_stream import (
    Add,
    DeepNorm,
    Gated,
    LayerScale,
    Replace,
    ReZero,
    Scaled,
    StochasticDepth,
    Weighted,
)

__all__ = [
    "Add",
    "DeepNorm",
    "Dense",
    "DenseNet",
    "ForwardPass",
    "Gated",
    "HyperConnections",
    "LayerScale",
    "ReZero",
    "Replace",
    "ResiDual",
    "Residual",
    "Reversible",
    "Scaled",
    "StochasticDepth",
    "Weighted",
]
