"""The attention slot's base."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

from torch import Tensor, nn

from swapformer.model.context import Context
from swapformer.model.position import Position


class Attention(nn.Module, ABC):
    """Mixes places: x [B, Q, D] → [B, Q, D], reading x itself, or the places of a `memory` [B, K, D] in its stead.

    `uses` names the slots whose parts the constructor takes as keywords beside its own settings.

    Facts:
        cache_width: elements that generation keeps for each place of a sequence; None where no such cache exists.
        crosses: whether it can read a memory, which cross-attention needs.
    """

    cache_width: int | None = None
    crosses: bool = True

    uses: ClassVar[tuple[str, ...]] = ()

    @abstractmethod
    def forward(self, x: Tensor, context: Context, position: Position, memory: Tensor | None = None) -> Tensor: ...

    def weights(self, x: Tensor, context: Context, position: Position, memory: Tensor | None = None) -> Tensor | None:
        """The attention weights [B, H, Q, K] of an input; None for an attention that never forms them."""
        return None

    def refuses(self, position: Position) -> str | None:
        """Why this attention cannot work with such a position encoding, and what would; None if it can."""
        return None
