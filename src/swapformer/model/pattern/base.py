"""The pattern slot's base, and the intersection and union of two patterns."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

from torch import Tensor

from swapformer.model.tokens import Tokens
from swapformer.ranges import Declared


@dataclass(frozen=True)
class Reach:
    """A bound on the pairs of a pattern: step | j − i and −before ≤ j − i ≤ after, or i or j is a landmark.

    Kernels leave out the pairs of query i and key j outside the bound and mask those inside.

    Attributes:
        before, after: the largest distance to earlier and later keys; infinite for no bound.
        step: a divisor of every distance.
        landmarks: positions of tokens that may attend to or be attended to by all, counted from the first token.
    """

    before: float = math.inf
    after: float = math.inf
    step: int = 1
    landmarks: tuple[int, ...] = ()

    @property
    def bounded(self) -> bool:
        """Whether the pattern is a band of fixed width, so that work can grow linearly with the length."""
        return self.before + self.after < math.inf

    def __and__(self, other: Reach) -> Reach:
        before, after = min(self.before, other.before), min(self.after, other.after)
        return Reach(before, after, math.lcm(self.step, other.step), self._landmarks_with(other))

    def __or__(self, other: Reach) -> Reach:
        before, after = max(self.before, other.before), max(self.after, other.after)
        return Reach(before, after, math.gcd(self.step, other.step), self._landmarks_with(other))

    def _landmarks_with(self, other: Reach) -> tuple[int, ...]:
        return tuple(sorted({*self.landmarks, *other.landmarks}))


class Pattern(Declared, ABC):
    """Base of the slot: which keys a query may attend to, at least itself, by the tokens' `order`.

    Facts:
        full: every query may attend to every key.
        causal: no query may attend to a later key.
        plain_causal: exactly “every earlier token and itself”, for which kernels have a fast path.
        anchored: the allowed keys depend on how far tokens are from the beginning, not only from each other.
        depends_on_length: the allowed keys depend on how many tokens follow, so that generation cannot cache.
        tags: names of the channels of Tokens that it reads, which the task must supply.
        reach: a bound on the pairs that it allows, outside of which kernels compute nothing.
    """

    full: bool = False
    causal: bool = False
    plain_causal: bool = False
    anchored: bool = False
    depends_on_length: bool = False
    tags: tuple[str, ...] = ()
    reach: Reach = Reach()

    @abstractmethod
    def allowed(self, query: Tokens, key: Tokens) -> Tensor | None:
        """True where a query may attend to a key, bool [B|1, H|1, Q, K]; None if everything is allowed."""

    def pairs(self, length: int) -> int | None:
        """The number of pairs that it allows among `length` tokens in order; None where that has to be counted."""
        return None

    def __and__(self, other: Pattern) -> Pattern:
        return Intersection(self, other)

    def __or__(self, other: Pattern) -> Pattern:
        return Union(self, other)


def steps_ahead(query: Tokens, key: Tokens) -> Tensor:
    """True position of the key minus that of the query, int64 [B|1, 1, Q, K]."""
    return (key.order[:, None, :] - query.order[:, :, None])[:, None]


class Intersection(Pattern):
    """The pairs that two patterns both allow."""

    def __init__(self, first: Pattern, second: Pattern) -> None:
        self.first, self.second = first, second
        self.causal = first.causal or second.causal
        self.anchored = first.anchored or second.anchored
        self.depends_on_length = first.depends_on_length or second.depends_on_length
        self.reach = first.reach & second.reach
        self.tags = tuple(dict.fromkeys(first.tags + second.tags))

    def allowed(self, query: Tokens, key: Tokens) -> Tensor | None:
        first, second = self.first.allowed(query, key), self.second.allowed(query, key)
        if first is None or second is None:
            return second if first is None else first
        return first & second


class Union(Pattern):
    """The pairs that at least one of two patterns allows."""

    def __init__(self, first: Pattern, second: Pattern) -> None:
        self.first, self.second = first, second
        self.causal = first.causal and second.causal
        self.anchored = first.anchored or second.anchored
        self.depends_on_length = first.depends_on_length or second.depends_on_length
        self.reach = first.reach | second.reach
        self.tags = tuple(dict.fromkeys(first.tags + second.tags))

    def allowed(self, query: Tokens, key: Tokens) -> Tensor | None:
        first, second = self.first.allowed(query, key), self.second.allowed(query, key)
        return None if first is None or second is None else first | second
