"""What a recurrent mixer keeps of the places it has seen, and what it makes of new ones before they meet its state."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from swapformer.model.attention.convolution import convolve, recent
from swapformer.model.context import Context
from swapformer.model.layers import Linear
from swapformer.model.pattern import Pattern
from swapformer.model.position import Position
from swapformer.model.tokens import Tokens


@dataclass(frozen=True)
class Carry:
    """What a recurrent mixer keeps of the places that it has seen.

    Attributes:
        state: S, [B, H, E, V], in float32 or wider.
        recent: the last inputs of its convolution, [B, W − 1, C].
        document: that of the last place, [B|1, 1]; None where places have none.
    """

    state: Tensor
    recent: Tensor
    document: Tensor | None

    @classmethod
    def of(cls, kept: tuple[Tensor, ...] | None) -> Carry | None:
        """The carry of what a cache keeps; None of nothing."""
        return None if kept is None else cls(kept[0], kept[1], kept[2] if len(kept) == 3 else None)

    def parts(self) -> tuple[Tensor, ...]:
        """What a cache shall keep: a row for each sequence."""
        rows = (self.state, self.recent)
        return rows if self.document is None else (*rows, self.document.expand(len(self.state), -1))


@dataclass(frozen=True)
class Inputs:
    """What new places bring.

    Attributes:
        q, k, v: silu(convolution(W x)) by channels, [B, T, C].
        recent, document: as the next carry holds them.
        fresh: True where a document starts, bool [B|1, T]; None where places have none.
        state: the state that they meet; None for none.
    """

    q: Tensor
    k: Tensor
    v: Tensor
    recent: Tensor
    document: Tensor | None
    fresh: Tensor | None
    state: Tensor | None

    def carry(self, state: Tensor) -> Carry:
        """What to keep, with the state after these places."""
        return Carry(state, self.recent, self.document)


def take_in(x: Tensor, maps: Sequence[Linear], taps: Tensor, tokens: Tokens, carry: Carry | None) -> Inputs:
    """New places x [B, T, D] through the maps of q, k and v and their convolution, behind those of the carry."""
    before, document, state = (None, None, None) if carry is None else (carry.recent, carry.document, carry.state)
    projected = torch.cat([project(x) for project in maps], dim=-1)
    convolved = functional.silu(convolve(projected, taps, tokens, before, document))
    q, k, v = torch.split(convolved, [len(project.weight) for project in maps], dim=-1)
    kept = recent(projected, len(taps) - 1, tokens, before, document)
    if tokens.document is None:
        return Inputs(q, k, v, kept, None, None, state)
    previous = tokens.document[:, :1] if document is None else document
    fresh = tokens.document != torch.cat([previous, tokens.document[:, :-1]], dim=1)
    return Inputs(q, k, v, kept, tokens.document[:, -1:], fresh, state)


Advance = Callable[[Tensor, Context, Position, Carry | None], tuple[Tensor, Carry]]
"""New places [B, T, D], against themselves, and what is kept of those before → their output, and what to keep."""


def go_on(owner: object, advance: Advance, x: Tensor, context: Context, position: Position) -> Tensor:
    """The output at new places, from what the context's cache keeps of those before, if there is one."""
    if context.cache is None:
        assert context.query is context.key, "a recurrent mixer keeps a state, not keys, and so needs a cache"
        return advance(x, context, position, None)[0]
    out, carry = advance(x, context.among_queries, position, Carry.of(context.cache.get(owner)))
    context.cache.put(owner, *carry.parts())
    return out


def require_causal(pattern: Pattern, name: str) -> None:
    """Refuse a pattern that a state, which knows the past as a whole, cannot follow."""
    if not pattern.plain_causal:
        raise ValueError(
            f"{name} goes from place to place and knows the past as one state, so it cannot follow the pattern "
            f"{type(pattern).__name__}; use model/pattern=causal, or model/attention=mha."
        )
