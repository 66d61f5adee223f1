"""Norms of the residual stream."""

from swapformer.model.norm.base import Identity, Norm
from swapformer.model.norm.batch import BatchNorm
from swapformer.model.norm.per_token import DyT, LayerNorm, RMSNorm, ScaleNorm, Shift

__all__ = ["BatchNorm", "DyT", "Identity", "LayerNorm", "Norm", "RMSNorm", "ScaleNorm", "Shift"]
