"""The state of recurrent attention between two calls: a matrix for each head, and the convolution's last inputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from swapformer.model.context import Context
from swapformer.model.layers import Linear
from swapformer.model.ops import causal_convolution, convolution_state
from swapformer.model.position import Position
from swapformer.model.tokens import Tokens


@dataclass(frozen=True)
class RecurrentState:
    """The memory of a recurrent attention of the tokens that it has read.

    Attributes:
        state: S, [B, H, E, V], in float32 or wider.
        recent: the last inputs of its convolution, [B, W − 1, C].
        document: that of the last token, [B|1, 1]; None where tokens have none.
    """

    state: Tensor
    recent: Tensor
    document: Tensor | None

    @classmethod
    def of(cls, cached: tuple[Tensor, ...] | None) -> RecurrentState | None:
        """The state that a cache holds as `tensors`; None if it holds nothing."""
        return None if cached is None else cls(cached[0], cached[1], cached[2] if len(cached) == 3 else None)

    def tensors(self) -> tuple[Tensor, ...]:
        """The content of a cache: tensors with a row for each sequence."""
        rows = (self.state, self.recent)
        return rows if self.document is None else (*rows, self.document.expand(len(self.state), -1))


@dataclass(frozen=True)
class RecurrentInputs:
    """Queries, keys and values of new tokens, and what they continue.

    Attributes:
        q, k, v: silu(convolution(W x)) by channels, [B, T, C].
        recent, document: as the next `RecurrentState` holds them.
        fresh: True where a document starts, bool [B|1, T]; None where tokens have none.
        state: the state before the first of them; None for none.
    """

    q: Tensor
    k: Tensor
    v: Tensor
    recent: Tensor
    document: Tensor | None
    fresh: Tensor | None
    state: Tensor | None

    @classmethod
    def of(
        cls, x: Tensor, maps: Sequence[Linear], taps: Tensor, tokens: Tokens, before: RecurrentState | None
    ) -> RecurrentInputs:
        """New tokens x [B, T, D] through the maps of q, k and v and their convolution, which `before` continues."""
        recent, document, state = (
            (None, None, None) if before is None else (before.recent, before.document, before.state)
        )
        projected = torch.cat([project(x) for project in maps], dim=-1)
        convolved = functional.silu(causal_convolution(projected, taps, tokens, recent, document))
        q, k, v = torch.split(convolved, [len(project.weight) for project in maps], dim=-1)
        last = convolution_state(projected, len(taps) - 1, tokens, recent, document)
        if tokens.document is None:
            return cls(q, k, v, last, None, None, state)
        previous = tokens.document[:, :1] if document is None else document
        fresh = tokens.document != torch.cat([previous, tokens.document[:, :-1]], dim=1)
        return cls(q, k, v, last, tokens.document[:, -1:], fresh, state)

    def after(self, state: Tensor) -> RecurrentState:
        """The content to store, with the state after these tokens."""
        return RecurrentState(state, self.recent, self.document)


Advance = Callable[[Tensor, Context, Position, RecurrentState | None], tuple[Tensor, RecurrentState]]
"""New tokens [B, T, D], their context and position, and the state before them → their output, and the state after."""


def continue_from_cache(owner: object, advance: Advance, x: Tensor, context: Context, position: Position) -> Tensor:
    """The output for new tokens, from the state that the context's cache, if there is one, holds for `owner`."""
    if context.cache is None:
        assert context.query is context.key, "a recurrent attention keeps a state, not keys, and so needs a cache"
        return advance(x, context, position, None)[0]
    out, after = advance(x, context.among_queries, position, RecurrentState.of(context.cache.get(owner)))
    context.cache.put(owner, *after.tensors())
    return out
