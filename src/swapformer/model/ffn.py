"""Feed-forward layers: what is computed at each place alone."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

from torch import Tensor, nn

from swapformer.model.activation import Activation
from swapformer.model.dims import Dims
from swapformer.model.layers import Linear, Role


class FFN(nn.Module, ABC):
    """Base of the slot: x [B, T, D] → [B, T, D]. `uses` names the slots whose parts the constructor takes."""

    uses: ClassVar[tuple[str, ...]] = ("activation",)

    @abstractmethod
    def forward(self, x: Tensor) -> Tensor: ...


def _width(width: int | None, default: float) -> int:
    chosen = round(default) if width is None else width
    if not isinstance(chosen, int) or chosen < 1:
        raise ValueError(
            f"the `width` of a feed-forward layer must be a whole number of at least 1, but it is {chosen}; "
            "set `width`, or a larger `expansion`."
        )
    return chosen


class MLP(FFN):
    """dropout(act(xW₁ + b₁)W₂ + b₂) (Vaswani et al. 2017, arXiv:1706.03762).

    Args:
        expansion: F/D.
        width: F itself, in place of `expansion`; None to follow it.

    Raises:
        ValueError: if the width is below 1.
    """

    def __init__(self, dims: Dims, *, activation: Activation, expansion: float, width: int | None = None) -> None:
        super().__init__()
        width = _width(width, expansion * dims.d_model)
        self.up = Linear(dims.d_model, width, Role.FFN_IN, bias=dims.bias)
        self.down = Linear(width, dims.d_model, Role.FFN_OUT, bias=dims.bias)
        self.activation = activation
        self.dropout = nn.Dropout(dims.dropout)

    def forward(self, x: Tensor) -> Tensor:
        return self.dropout(self.down(self.activation(self.up(x))))


class GLU(FFN):
    """dropout((act(xW_g + b_g) ⊙ (xW₁ + b₁))W₂ + b₂) (Shazeer 2020, arXiv:2002.05202).

    GEGLU with gelu, SwiGLU with silu, ReGLU with relu. Three matrices instead of two, so F = ⅔ · expansion · D keeps
    the parameters of an MLP with the same `expansion`, up to rounding.

    Args:
        expansion: F/D of the MLP with as many weights.
        width: F itself, in place of `expansion`; None to follow it.

    Raises:
        ValueError: if the width is below 1.
    """

    def __init__(self, dims: Dims, *, activation: Activation, expansion: float, width: int | None = None) -> None:
        super().__init__()
        width = _width(width, 2 / 3 * expansion * dims.d_model)
        self.gate = Linear(dims.d_model, width, Role.FFN_GATE, bias=dims.bias)
        self.up = Linear(dims.d_model, width, Role.FFN_IN, bias=dims.bias)
        self.down = Linear(width, dims.d_model, Role.FFN_OUT, bias=dims.bias)
        self.activation = activation
        self.dropout = nn.Dropout(dims.dropout)

    def forward(self, x: Tensor) -> Tensor:
        return self.dropout(self.down(self.activation(self.gate(x)) * self.up(x)))
