"""The attention slot's base."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar

from torch import Tensor, nn

from swapformer.model.context import Context
from swapformer.model.dims import Dims
from swapformer.model.position import Position


class Attention(nn.Module, ABC):
    """Mixes places: x [B, Q, D] → [B, Q, D].

    `uses` names the slots whose parts the constructor takes as keywords beside its own settings.
    One that wants something beside the task's loss leaves it in `auxiliary_loss` (see `model.auxiliary`).

    Facts:
        cache_width: elements that generation keeps for each place of a sequence; None where no such cache exists.
        state_width: elements that generation keeps of a sequence whatever its length; None where no such state exists.
            An attention that has one advances it by new places in `advance`.
        has_auxiliary_loss: whether a forward in training leaves one.
        shares_values: (heads, width) of the values that it mixes with those of the first layer; None if it does not.
    """

    cache_width: int | None = None
    state_width: int | None = None
    has_auxiliary_loss: bool = False
    shares_values: tuple[int, int] | None = None

    uses: ClassVar[tuple[str, ...]] = ()

    @classmethod
    def position_dims(cls, dims: Dims, **settings: Any) -> Dims:
        """The sizes that a position encoding is made for, given the attention's own settings.

        `head_dim` is the width of what the attention hands to `rotate`: a whole head, unless it says otherwise.
        """
        return dims

    @abstractmethod
    def forward(self, x: Tensor, context: Context, position: Position) -> Tensor: ...

    def weights(self, x: Tensor, context: Context, position: Position) -> Tensor | None:
        """The attention weights [B, H, Q, K] of an input; None for an attention that never forms them."""
        return None

    def refuses(self, position: Position) -> str | None:
        """Why this attention cannot work with such a position encoding, and what would; None if it can."""
        return None
