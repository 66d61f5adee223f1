"""Initialisations: the standard deviation of each weight, by its declared role."""

from swapformer.model.init.base import Init, initialise
from swapformer.model.init.depth import GPT2, DeepNorm, Fixup, TFixup, ZeroBranch
from swapformer.model.init.fan import Kaiming, Natural, Normal, Orthogonal, Small, Torch, Xavier

__all__ = [
    "GPT2",
    "DeepNorm",
    "Fixup",
    "Init",
    "Kaiming",
    "Natural",
    "Normal",
    "Orthogonal",
    "Small",
    "TFixup",
    "Torch",
    "Xavier",
    "ZeroBranch",
    "initialise",
]
