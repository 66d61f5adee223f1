"""The pattern slot's base, and what two patterns make together."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

from torch import Tensor

from swapformer.model.tokens import Tokens


@dataclass(frozen=True)
class Reach:
    """How far a pattern sees at most: step | j − i and −before ≤ j − i ≤ after, or i or j is a landmark.

    A bound and not the pattern itself: kernels leave out the pairs (i, j) outside it and mask those inside.

    Attributes:
        before, after: places that are seen on either side; infinite where there is no bound.
        step: what divides every distance.
        landmarks: places that may see or be seen from anywhere, counted from the first of the sequence.
    """

    before: float = math.inf
    after: float = math.inf
    step: int = 1
    landmarks: tuple[int, ...] = ()

    @property
    def bounded(self) -> bool:
        """Whether places see a band of fixed width, so that work can grow linearly with the length."""
        return self.before + self.after < math.inf

    def __and__(self, other: Reach) -> Reach:
        before, after = min(self.before, other.before), min(self.after, other.after)
        return Reach(before, after, math.lcm(self.step, other.step), self._landmarks_with(other))

    def __or__(self, other: Reach) -> Reach:
        before, after = max(self.before, other.before), max(self.after, other.after)
        return Reach(before, after, math.gcd(self.step, other.step), self._landmarks_with(other))

    def _landmarks_with(self, other: Reach) -> tuple[int, ...]:
        return tuple(sorted({*self.landmarks, *other.landmarks}))


class Pattern(ABC):
    """Base of the slot. Every place sees at least itself; places are told by `order`, their true place.

    Facts:
        full: every place sees every place.
        causal: no place sees a later one.
        plain_causal: exactly “every earlier place and itself”, for which kernels have a fast path.
        anchored: what is allowed depends on how far places are from the beginning, not only from each other.
        tags: names of the channels of Tokens that it reads, which the task must supply.
        reach: a bound on the pairs that it allows, from which kernels know what they may leave out.
    """

    full: bool = False
    causal: bool = False
    plain_causal: bool = False
    anchored: bool = False
    tags: tuple[str, ...] = ()
    reach: Reach = Reach()

    @abstractmethod
    def allowed(self, query: Tokens, key: Tokens) -> Tensor | None:
        """True where a query may attend to a key, bool [B|1, H|1, Q, K]; None if everything is allowed."""

    def __and__(self, other: Pattern) -> Pattern:
        return Both(self, other)

    def __or__(self, other: Pattern) -> Pattern:
        return Either(self, other)


def steps_ahead(query: Tokens, key: Tokens) -> Tensor:
    """Key's place minus query's place, int64 [B|1, 1, Q, K]."""
    return (key.order[:, None, :] - query.order[:, :, None])[:, None]


class Both(Pattern):
    """What two patterns both allow."""

    def __init__(self, first: Pattern, second: Pattern) -> None:
        self.first, self.second = first, second
        self.causal = first.causal or second.causal
        self.anchored = first.anchored or second.anchored
        self.reach = first.reach & second.reach
        self.tags = tuple(dict.fromkeys(first.tags + second.tags))

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
        self.anchored = first.anchored or second.anchored
        self.reach = first.reach | second.reach
        self.tags = tuple(dict.fromkeys(first.tags + second.tags))

    def allowed(self, query: Tokens, key: Tokens) -> Tensor | None:
        first, second = self.first.allowed(query, key), self.second.allowed(query, key)
        return None if first is None or second is None else first | second
