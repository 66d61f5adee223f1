"""The attention slot's base."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar

from torch import Tensor

from swapformer.model.context import Context
from swapformer.model.dims import Dims
from swapformer.model.position import Position
from swapformer.model.taps import Tapped, record


class Attention(Tapped, ABC):
    """Mixes tokens: x [B, Q, D] → [B, Q, D]; keys and values come from x, or from another sequence `memory` [B, K, D].

    `uses` names the slots whose parts the constructor takes as keywords beside its own settings. An attention with a
    loss of its own leaves it in `auxiliary_loss` after a forward in training (see `take_auxiliary_loss`). The weights
    whose product with the values is the heads' output are its place `hook_pattern`, if it has any.

    Facts:
        sees_order: it tells tokens by their order itself (a convolution, a recurrence), beside position and pattern.
        anchored: it counts tokens from the row's beginning or by its length (segments, blocks, learned projections).
        isotropic: with a rotary encoding it sees only distances; false where it does more with rotated queries and
            keys than multiply them.
        cache_width: elements that generation caches for each token of a sequence; None where there is no such cache.
        state_width: elements that generation caches of a sequence whatever its length; None where there is no state.
        caches: tokens can be read one after the other, with what `context.cache` holds of those before.
        crosses: whether it can read a memory, which cross-attention needs.
        causal_safe: under a causal pattern no position sees a later one; an attention that is not refuses every
            pattern but the full one.
        limit: positions it can mix, counted from 0; None for no limit.
        signed: the weights that its computation implies may be negative, so they are no distribution.
        has_auxiliary_loss: whether a forward in training leaves one.
        shares_values: (heads, width) of the values that it mixes with those of the first layer; None if it does not.
        scoreless: its name where it has no scores, to which a position encoding could add; None where it has.
    """

    sees_order: bool = False
    anchored: bool = False
    isotropic: bool = True
    cache_width: int | None = None
    state_width: int | None = None
    caches: bool = False
    crosses: bool = True
    causal_safe: ClassVar[bool] = True
    limit: int | None = None
    signed: ClassVar[bool] = False
    has_auxiliary_loss: bool = False
    shares_values: tuple[int, int] | None = None
    scoreless: ClassVar[str | None] = None

    uses: ClassVar[tuple[str, ...]] = ()

    @classmethod
    def position_dims(cls, dims: Dims, **settings: Any) -> Dims:
        """The sizes that a position encoding is made for, given the attention's own settings.

        `head_dim` is the width of what the attention hands to `rotate`: a whole head, unless it says otherwise.
        """
        return dims

    @abstractmethod
    def forward(self, x: Tensor, context: Context, position: Position, memory: Tensor | None = None) -> Tensor: ...

    def weights(self, x: Tensor, context: Context, position: Position, memory: Tensor | None = None) -> Tensor | None:
        """The weights that `hook_pattern` shows of a forward, [B, H, Q, K]; None for one that has no such place."""
        if "hook_pattern" not in self.places:
            return None
        with record(self, "hook_pattern") as seen:
            self(x, context, position, memory)
        return seen["hook_pattern"]

    def refuses(self, position: Position) -> str | None:
        """The reason why this attention cannot work with such a position encoding, and what would; None if it can."""
        if self.scoreless is None or not (position.has_bias or position.has_scores):
            return None
        return (
            f"{self.scoreless} attention has no scores that the position {type(position).__name__} could add to; use "
            "model/position=rope, sinusoidal, learned or none, or model/attention=mha"
        )
