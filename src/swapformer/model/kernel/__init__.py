"""Kernels: how attention is computed. `reference` is the specification; every other one must equal it."""

from swapformer.model.kernel.auto import Auto
from swapformer.model.kernel.base import AttentionPlan, Kernel
from swapformer.model.kernel.blocked import Blocked
from swapformer.model.kernel.flex import Flex
from swapformer.model.kernel.reference import Reference
from swapformer.model.kernel.sdpa import SDPA

__all__ = ["SDPA", "AttentionPlan", "Auto", "Blocked", "Flex", "Kernel", "Reference"]
