"""Patterns of the distance between two places, or of their places alone."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from swapformer.model.dims import Dims
from swapformer.model.pattern.base import Pattern, Reach, steps_ahead
from swapformer.model.tokens import Tokens


class Full(Pattern):
    """Every place sees every place (Vaswani et al. 2017, encoder, arXiv:1706.03762)."""

    full = True

    def __init__(self, dims: Dims) -> None:
        pass

    def allowed(self, query: Tokens, key: Tokens) -> None:
        return None


class Causal(Pattern):
    """Every place sees itself and all earlier places: j ≤ i (Vaswani et al. 2017, decoder, arXiv:1706.03762)."""

    causal = True
    plain_causal = True
    reach = Reach(after=0)

    def __init__(self, dims: Dims) -> None:
        pass

    def allowed(self, query: Tokens, key: Tokens) -> Tensor:
        return steps_ahead(query, key) <= 0


class Window(Pattern):
    """A band: −before ≤ j − i ≤ after, in places (Child et al. 2019, arXiv:1904.10509; Mistral 2023, arXiv:2310.06825).

    A window of w tokens in Mistral's sense, the token itself included, is `before = w − 1, after = 0`.

    Args:
        before: earlier places that are seen.
        after: later places that are seen; 0 makes the window causal.

    Raises:
        ValueError: if a number is negative.
    """

    def __init__(self, dims: Dims, *, before: int, after: int = 0) -> None:
        if before < 0 or after < 0:
            raise ValueError(f"`before` and `after` of a window must be at least 0, but they are {before} and {after}.")
        self.before, self.after = before, after
        self.causal = after == 0
        self.reach = Reach(before, after)

    def allowed(self, query: Tokens, key: Tokens) -> Tensor:
        ahead = steps_ahead(query, key)
        return (ahead >= -self.before) & (ahead <= self.after)


class Dilated(Pattern):
    """A band with gaps: j − i = s·step for a whole −before ≤ s ≤ after (Beltagy et al. 2020, arXiv:2004.05150).

    Args:
        before, after: places that are seen on either side; `before = None` for all, `after = 0` for a causal band.
        step: distance between two places that are seen.

    Raises:
        ValueError: if a count is negative or `step` below 1.
    """

    def __init__(self, dims: Dims, *, before: int | None, after: int, step: int) -> None:
        if (before or 0) < 0 or after < 0 or step < 1:
            raise ValueError(
                "a dilated band must have `before` and `after` of at least 0 and a `step` of at least 1, but they are "
                f"{before}, {after} and {step}."
            )
        self.before, self.after, self.step = before, after, step
        self.causal = after == 0
        self.reach = Reach(math.inf if before is None else before * step, after * step, step)

    def allowed(self, query: Tokens, key: Tokens) -> Tensor:
        ahead = steps_ahead(query, key)
        allowed = (ahead % self.step == 0) & (ahead <= self.after * self.step)
        return allowed if self.before is None else allowed & (ahead >= -self.before * self.step)


class Exponential(Pattern):
    """Itself and the places at distances 1, b, b², … before it (b = 2: LogSparse, Li et al. 2019, arXiv:1907.00235).

    Args:
        base: b.

    Raises:
        ValueError: if b is below 2.
    """

    causal = True

    def __init__(self, dims: Dims, *, base: int) -> None:
        if base < 2:
            raise ValueError(f"`base` of an exponential reach must be at least 2, but it is {base}.")
        self.base = base

    def allowed(self, query: Tokens, key: Tokens) -> Tensor:
        back = -steps_ahead(query, key)
        powers = [0] + [self.base**p for p in range(63) if self.base**p < 2**63]
        return torch.isin(back, torch.tensor(powers, device=back.device))


class Strided(Pattern):
    """The last `stride` places, and every place a multiple of `stride` back: 0 ≤ i − j < l or l | i − j ≥ 0.

    The union of the two heads of Child et al. 2019 (arXiv:1904.10509, section 4.2); for data with a period. The two as
    separate heads are the preset `strided_heads`.

    Args:
        stride: l, in places.

    Raises:
        ValueError: if l is below 1.
    """

    causal = True

    def __init__(self, dims: Dims, *, stride: int) -> None:
        _check_stride(stride)
        self.stride = stride

    def allowed(self, query: Tokens, key: Tokens) -> Tensor:
        back = -steps_ahead(query, key)
        return (back >= 0) & ((back < self.stride) | (back % self.stride == 0))


class Fixed(Pattern):
    """Earlier places of the same stretch of `stride` places, and the last `summary` places of every earlier stretch.

    j ≤ i, and ⌊j/l⌋ = ⌊i/l⌋ or j mod l ≥ l − c (Child et al. 2019, arXiv:1904.10509, section 4.2).

    Args:
        stride: l, in places.
        summary: c, in places.

    Raises:
        ValueError: if l is below 1, or c not between 1 and l.
    """

    causal = True
    anchored = True

    def __init__(self, dims: Dims, *, stride: int, summary: int) -> None:
        _check_stride(stride)
        if not 1 <= summary <= stride:
            raise ValueError(f"`summary` must lie between 1 and `stride`, but it is {summary} and `stride` {stride}.")
        self.stride, self.summary = stride, summary

    def allowed(self, query: Tokens, key: Tokens) -> Tensor:
        i, j = query.order[:, None, :, None], key.order[:, None, None, :]
        same = i // self.stride == j // self.stride
        return (j <= i) & (same | (j % self.stride >= self.stride - self.summary))


def _check_stride(stride: int) -> None:
    if stride < 1:
        raise ValueError(f"`stride` of a sparse pattern must be at least 1, but it is {stride}.")
