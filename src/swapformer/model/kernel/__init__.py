"""Kernels: how attention is computed. `reference` is the specification; every other one must equal it."""

from swapformer.model.kernel.base import AttentionPlan, Kernel
from swapformer.model.kernel.blocked import Auto, Blocked
from swapformer.model.kernel.dense import SDPA, Reference
from swapformer.model.kernel.flex import Flex

__all__ = ["SDPA", "AttentionPlan", "Auto", "Blocked", "Flex", "Kernel", "Reference"]
