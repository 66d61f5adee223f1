"""Norms of the stream."""

from swapformer.model.norm.base import Identity, Norm
from swapformer.model.norm.batch import BatchNorm
from swapformer.model.norm.shift import Shift
from swapformer.model.norm.width import DyT, LayerNorm, RMSNorm, ScaleNorm

__all__ = ["BatchNorm", "DyT", "Identity", "LayerNorm", "Norm", "RMSNorm", "ScaleNorm", "Shift"]
