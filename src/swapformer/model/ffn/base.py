"""The feed-forward slot's base."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import ClassVar

from torch import Tensor

from swapformer.model.dims import Dims
from swapformer.model.taps import Tapped


class FFN(Tapped, ABC):
    """Base of the slot: x [B, T, D] → update [B, T, D].

    A layer with a loss beside the task's leaves it in `auxiliary_loss` (see `take_auxiliary_loss`).

    Facts:
        uses: the slots whose parts the constructor takes as keywords.
        present: whether there is a feed-forward layer; if not, a block has one branch less.
        has_auxiliary_loss: whether a forward in training leaves one.
        alternatives: settings that exclude each other, of which one at most is set.
    """

    uses: ClassVar[tuple[str, ...]] = ("activation",)
    alternatives: ClassVar[tuple[tuple[str, ...], ...]] = (("expansion", "width"),)
    present: bool = True
    has_auxiliary_loss: bool = False

    @abstractmethod
    def forward(self, x: Tensor, padding: Tensor | None = None) -> Tensor:
        """The update; `padding` [B|1, T] is True where a token is padding, None if no token is."""


HIDDEN: Mapping[str, str] = {"hook_pre": "B T F", "hook_post": "B T F"}
"""The places of a layer with one activation: before it, and what the matrix behind it gets."""


class Nothing(FFN):
    """No feed-forward layer: a layer is only its attention (Vaswani et al. 2017, arXiv:1706.03762, without eq. 2)."""

    uses = ()
    present = False

    def __init__(self, dims: Dims) -> None:
        super().__init__()

    def forward(self, x: Tensor, padding: Tensor | None = None) -> Tensor:
        return x.new_zeros(x.shape)


def hidden_width(dims: Dims, width: int | None, expansion: float | None, share: float = 1.0) -> int:
    """F: the `width` that is set, else share · expansion · D rounded, where an expansion that is not set is 4.

    Raises:
        ValueError: if both are set, or the width is no whole number of at least 1.
    """
    if width is not None and expansion is not None:
        raise ValueError(
            f"a feed-forward layer has an `expansion` or a `width`, but both are set ({expansion} and {width}); set "
            "one of them to null."
        )
    chosen = round(share * (4.0 if expansion is None else expansion) * dims.d_model) if width is None else width
    if not isinstance(chosen, int) or chosen < 1:
        raise ValueError(
            f"the `width` of a feed-forward layer must be a whole number of at least 1, but it is {chosen}; "
            "set `width`, or a larger `expansion`."
        )
    return chosen
