"""The attention slot's base."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

from torch import Tensor, nn

from swapformer.model.context import Context
from swapformer.model.position import Position


class Attention(nn.Module, ABC):
    """Mixes places: x [B, Q, D] → [B, Q, D].

    `uses` names the slots whose parts the constructor takes as keywords beside its own settings.

    Facts:
        sees_order: it tells places by their order itself (a convolution, a recurrence), beside position and pattern.
        anchored: it counts places from the row's beginning or by its length (segments, blocks, a projection of places).
        isotropic: with a rotary encoding it sees distances alone; false where what meets is no product of what turns.
        cache_width: elements that generation keeps for each place of a sequence; None where no such cache exists.
    """

    sees_order: bool = False
    anchored: bool = False
    isotropic: bool = True
    cache_width: int | None = None

    uses: ClassVar[tuple[str, ...]] = ()

    @abstractmethod
    def forward(self, x: Tensor, context: Context, position: Position) -> Tensor: ...

    def weights(self, x: Tensor, context: Context, position: Position) -> Tensor | None:
        """The attention weights [B, H, Q, K] of an input; None for an attention that never forms them."""
        return None

    def refuses(self, position: Position) -> str | None:
        """Why this attention cannot work with such a position encoding, and what would; None if it can."""
        return None
