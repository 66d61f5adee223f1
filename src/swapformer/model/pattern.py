"""Patterns: which places a place may attend to.

A pattern is `allowed(query, key) → bool [B|1, H|1, Q, K]`; `a & b` allows what both allow, `a | b` what either allows.
Padding and documents are not a pattern's business: the context adds them to every pattern.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from torch import Tensor

from swapformer.model.context import Tokens
from swapformer.model.dims import Dims


class Pattern(ABC):
    """Base of the slot.

    Facts:
        causal: no place sees a later one.
        plain_causal: exactly “every earlier place and itself”, for which kernels have a fast path.
    """

    causal: bool = False
    plain_causal: bool = False

    @abstractmethod
    def allowed(self, query: Tokens, key: Tokens) -> Tensor | None:
        """True where a query may attend to a key, bool [B|1, H|1, Q, K]; None if everything is allowed."""

    def __and__(self, other: Pattern) -> Pattern:
        return Both(self, other)

    def __or__(self, other: Pattern) -> Pattern:
        return Either(self, other)


def _steps_ahead(query: Tokens, key: Tokens) -> Tensor:
    """Key's place minus query's place, [B|1, 1, Q, K]."""
    return (key.order[:, None, :] - query.order[:, :, None])[:, None]


class Full(Pattern):
    """Every place sees every place (Vaswani et al. 2017, encoder, arXiv:1706.03762)."""

    def __init__(self, dims: Dims) -> None:
        pass

    def allowed(self, query: Tokens, key: Tokens) -> None:
        return None


class Causal(Pattern):
    """Every place sees itself and all earlier places: j ≤ i (Vaswani et al. 2017, decoder, arXiv:1706.03762)."""

    causal = True
    plain_causal = True

    def __init__(self, dims: Dims) -> None:
        pass

    def allowed(self, query: Tokens, key: Tokens) -> Tensor:
        return _steps_ahead(query, key) <= 0


class Window(Pattern):
    """A band: −before ≤ j − i ≤ after, in places (Child et al. 2019, arXiv:1904.10509; Mistral 2023, arXiv:2310.06825).

    A window of w tokens in Mistral's sense, the token itself included, is `before = w − 1, after = 0`.

    Args:
        before: earlier places that are seen.
        after: later places that are seen; 0 makes the window causal.

    Raises:
        ValueError: if a number is negative.
    """

    def __init__(self, dims: Dims, *, before: int, after: int) -> None:
        if before < 0 or after < 0:
            raise ValueError(f"`before` and `after` of a window must be at least 0, but they are {before} and {after}.")
        self.before, self.after = before, after
        self.causal = after == 0

    def allowed(self, query: Tokens, key: Tokens) -> Tensor:
        ahead = _steps_ahead(query, key)
        return (ahead >= -self.before) & (ahead <= self.after)


class Both(Pattern):
    """What two patterns both allow."""

    def __init__(self, first: Pattern, second: Pattern) -> None:
        self.first, self.second = first, second
        self.causal = first.causal or second.causal

    def allowed(self, query: Tokens, key: Tokens) -> Tensor | None:
        first, second = self.first.allowed(query, key), self.second.allowed(query, key)
        if first is None or second is None:
            return second if first is None else first
        return first & second


class Either(Pattern):
    """What at least one of two patterns allows."""

    def __init__(self, first: Pattern, second: Pattern) -> None:
        self.first, self.second = first, second
        self.causal = first.causal and second.causal

    def allowed(self, query: Tokens, key: Tokens) -> Tensor | None:
        first, second = self.first.allowed(query, key), self.second.allowed(query, key)
        return None if first is None or second is None else first | second
