"""Patterns: which keys a query may attend to.

A pattern is `allowed(query, key) → bool [B|1, H|1, Q, K]`; `a & b` allows the pairs of both,
`a | b` those of either.
The context combines every pattern with padding and documents.
"""

from swapformer.model.pattern.base import Intersection, Pattern, Reach, Union
from swapformer.model.pattern.by_distance import (
    Causal,
    Dilated,
    Distant,
    Exponential,
    Fixed,
    Full,
    Seasonal,
    Strided,
    Window,
)
from swapformer.model.pattern.by_tag import TaggedKeys, TagLink, TagWindow
from swapformer.model.pattern.combined import AllOf, AnyOf, PerHead
from swapformer.model.pattern.function import Function, states
from swapformer.model.pattern.global_tokens import BigBird, Longformer

__all__ = [
    "AllOf",
    "AnyOf",
    "BigBird",
    "Causal",
    "Dilated",
    "Distant",
    "Exponential",
    "Fixed",
    "Full",
    "Function",
    "Intersection",
    "Longformer",
    "Pattern",
    "PerHead",
    "Reach",
    "Seasonal",
    "Strided",
    "TagLink",
    "TagWindow",
    "TaggedKeys",
    "Union",
    "Window",
    "states",
]
