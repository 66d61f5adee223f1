"""Residual streams: how a branch reads what came before and adds its update."""

from swapformer.model.residual.base import Residual, Walk
from swapformer.model.residual.concatenated import DenseNet
from swapformer.model.residual.multi_stream import Dense, HyperConnections, ResiDual
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
    "Walk",
    "Weighted",
]
