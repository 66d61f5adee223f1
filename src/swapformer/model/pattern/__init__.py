"""Patterns: which places a place may attend to.

A pattern is `allowed(query, key) → bool [B|1, H|1, Q, K]`; `a & b` allows what both allow, `a | b` what either allows.
Padding and documents are not a pattern's business: the context adds them to every pattern.
"""

from swapformer.model.pattern.base import Both, Either, Pattern, Reach
from swapformer.model.pattern.combined import AllOf, AnyOf, PerHead
from swapformer.model.pattern.distant import Distant
from swapformer.model.pattern.function import Function, states
from swapformer.model.pattern.landmarks import BigBird, Longformer
from swapformer.model.pattern.regular import Causal, Dilated, Exponential, Fixed, Full, Strided, Window
from swapformer.model.pattern.tagged import TaggedKeys, TagWindow

__all__ = [
    "AllOf",
    "AnyOf",
    "BigBird",
    "Both",
    "Causal",
    "Dilated",
    "Distant",
    "Either",
    "Exponential",
    "Fixed",
    "Full",
    "Function",
    "Longformer",
    "Pattern",
    "PerHead",
    "Reach",
    "Strided",
    "TagWindow",
    "TaggedKeys",
    "Window",
    "states",
]
