"""Patterns by the distance of query and key: full, causal, windows, dilated, strided and fixed patterns."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from swapformer.model.dims import Dims
from swapformer.model.ops import Constants
from swapformer.model.pattern.base import Pattern, Reach, steps_ahead
from swapformer.model.tokens import Tokens
from swapformer.ranges import Count, Natural, Several


class Full(Pattern):
    """Every query may attend to every key (Vaswani et al. 2017, encoder, arXiv:1706.03762)."""

    full = True

    def __init__(self, dims: Dims) -> None:
        pass

    def allowed(self, query: Tokens, key: Tokens) -> None:
        return None

    def pairs(self, length: int) -> int:
        return length * length


class Causal(Pattern):
    """Every query may attend to itself and all earlier keys: j ≤ i (Vaswani et al. 2017, decoder, arXiv:1706.03762)."""

    causal = True
    plain_causal = True
    reach = Reach(after=0)

    def __init__(self, dims: Dims) -> None:
        pass

    def allowed(self, query: Tokens, key: Tokens) -> Tensor:
        return steps_ahead(query, key) <= 0

    def pairs(self, length: int) -> int:
        return length * (length + 1) // 2


class Window(Pattern):
    """A band: −before ≤ j − i ≤ after, in tokens (Child et al. 2019, arXiv:1904.10509; Mistral 2023, arXiv:2310.06825).

    A window of w tokens in Mistral's sense, the token itself included, is `before = w − 1, after = 0`.

    Args:
        before: earlier tokens in the window.
        after: later tokens in the window; 0 makes it causal.

    Raises:
        ValueError: if a number is negative.
    """

    def __init__(self, dims: Dims, *, before: Natural, after: Natural = 0) -> None:
        self.before, self.after = before, after
        self.causal = after == 0
        self.reach = Reach(before, after)

    def allowed(self, query: Tokens, key: Tokens) -> Tensor:
        ahead = steps_ahead(query, key)
        return (ahead >= -self.before) & (ahead <= self.after)

    def pairs(self, length: int) -> int:
        """n + Σ_i min(i, before) + Σ_i min(i, after): the first tokens see fewer before, the last fewer after them."""
        cuts = (min(side, length - 1) for side in (self.before, self.after))
        return length + sum(cut * (cut + 1) // 2 + (length - 1 - cut) * cut for cut in cuts)


class Dilated(Pattern):
    """A band with gaps: j − i = s·step for a whole −before ≤ s ≤ after (Beltagy et al. 2020, arXiv:2004.05150).

    Args:
        before, after: allowed keys on either side; `before = None` for all, `after = 0` for a causal band.
        step: distance between two allowed keys.

    Raises:
        ValueError: if a count is negative or `step` below 1.
    """

    def __init__(self, dims: Dims, *, before: Natural | None, after: Natural, step: Count) -> None:
        self.before, self.after, self.step = before, after, step
        self.causal = after == 0
        self.reach = Reach(math.inf if before is None else before * step, after * step, step)

    def allowed(self, query: Tokens, key: Tokens) -> Tensor:
        ahead = steps_ahead(query, key)
        allowed = (ahead % self.step == 0) & (ahead <= self.after * self.step)
        return allowed if self.before is None else allowed & (ahead >= -self.before * self.step)


class Distant(Pattern):
    """Itself and all tokens at least `nearest` before it: those that a causal window of `nearest` tokens leaves out.

    For a head that attends only to distant tokens, beside heads with a window. Trained models have both kinds,
    positional heads and heads of broad attention (Clark et al. 2019, arXiv:1906.04341, section 3).

    Args:
        nearest: the smallest distance, in tokens.

    Raises:
        ValueError: if `nearest` is below 2, which is the whole past.
    """

    causal = True
    reach = Reach(after=0)

    def __init__(self, dims: Dims, *, nearest: Several) -> None:
        self.nearest = nearest

    def allowed(self, query: Tokens, key: Tokens) -> Tensor:
        back = -steps_ahead(query, key)
        return (back == 0) | (back >= self.nearest)


class Exponential(Pattern):
    """Itself and the tokens at distances 1, b, b², … before it (b = 2: LogSparse, Li et al. 2019, arXiv:1907.00235).

    Args:
        base: b.

    Raises:
        ValueError: if b is below 2.
    """

    causal = True

    def __init__(self, dims: Dims, *, base: Several) -> None:
        self.base, self.constants = base, Constants()

    def allowed(self, query: Tokens, key: Tokens) -> Tensor:
        back = -steps_ahead(query, key)
        powers = (0, *(self.base**p for p in range(63) if self.base**p < 2**63))
        allowed = self.constants.of(powers, torch.int64, back.device)
        nearest = torch.searchsorted(allowed, back).clamp(max=len(powers) - 1)  # torch.isin would wait for a GPU
        return allowed[nearest] == back


class Seasonal(Pattern):
    """Itself, and the tokens whole periods before the one `ahead` of it: p | i + a − j and j ≤ i.

    For a series that comes round after p steps. What resembles the next value most is the value p steps before *that*
    one, p − 1 before the query: a = 1. Keys whole periods before the query itself (a = 0) are those of the second head
    of Child et al. 2019 (arXiv:1904.10509, section 4.2).

    Args:
        period: p, in tokens.
        ahead: a, in tokens.

    Raises:
        ValueError: if p is below 1 or a below 0.
    """

    causal = True
    reach = Reach(after=0)

    def __init__(self, dims: Dims, *, period: Count, ahead: Natural) -> None:
        self.period, self.ahead = period, ahead

    def allowed(self, query: Tokens, key: Tokens) -> Tensor:
        back = -steps_ahead(query, key)
        return (back == 0) | ((back > 0) & ((back + self.ahead) % self.period == 0))


class Strided(Pattern):
    """The last `stride` tokens, and every token a multiple of `stride` back: 0 ≤ i − j < l or l | i − j ≥ 0.

    The union of the two heads of Child et al. 2019 (arXiv:1904.10509, section 4.2); for data with a period. The two as
    separate heads are the preset `strided_heads`.

    Args:
        stride: l, in tokens.

    Raises:
        ValueError: if l is below 1.
    """

    causal = True

    def __init__(self, dims: Dims, *, stride: Count) -> None:
        self.stride = stride

    def allowed(self, query: Tokens, key: Tokens) -> Tensor:
        back = -steps_ahead(query, key)
        return (back >= 0) & ((back < self.stride) | (back % self.stride == 0))


class Fixed(Pattern):
    """Earlier tokens of the same block of `stride` tokens, and the last `summary` tokens of every earlier block.

    j ≤ i, and ⌊j/l⌋ = ⌊i/l⌋ or j mod l ≥ l − c (Child et al. 2019, arXiv:1904.10509, section 4.2).

    Args:
        stride: l, in tokens.
        summary: c, in tokens.

    Raises:
        ValueError: if l is below 1, or c not between 1 and l.
    """

    causal = True
    anchored = True

    def __init__(self, dims: Dims, *, stride: Count, summary: Count) -> None:
        if not 1 <= summary <= stride:
            raise ValueError(f"`summary` must lie between 1 and `stride`, but it is {summary} and `stride` {stride}.")
        self.stride, self.summary = stride, summary

    def allowed(self, query: Tokens, key: Tokens) -> Tensor:
        i, j = query.order[:, None, :, None], key.order[:, None, None, :]
        same = i // self.stride == j // self.stride
        return (j <= i) & (same | (j % self.stride >= self.stride - self.summary))
