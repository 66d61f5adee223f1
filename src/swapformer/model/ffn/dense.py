"""Dense feed-forward layers: the two-matrix MLP and gated linear units."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from torch import Tensor, nn

from swapformer.model.activation import Activation
from swapformer.model.dims import Dims
from swapformer.model.ffn.base import FFN, HIDDEN, hidden_width
from swapformer.model.layers import Linear, Role
from swapformer.model.ops import lowered
from swapformer.ranges import Count, Positive


class MLP(FFN):
    """dropout(act(xW₁ + b₁)W₂ + b₂) (Vaswani et al. 2017, arXiv:1706.03762).

    Args:
        expansion: F/D; 4 where neither it nor `width` is given.
        width: F itself, instead of `expansion`.
        clip: activations are held within ±clip; None for no bound. With relu and 6 it is ReLU6.
        drop_hidden: whether dropout falls on the activations too, before W₂.
        drop_output: whether dropout falls on the update, after W₂.

    Raises:
        ValueError: if the width is below 1, or `clip` is not positive.
    """

    places: ClassVar[Mapping[str, str]] = HIDDEN

    def __init__(
        self,
        dims: Dims,
        *,
        activation: Activation,
        expansion: Positive | None = None,
        width: Count | None = None,
        clip: Positive | None = None,
        drop_hidden: bool = False,
        drop_output: bool = True,
    ) -> None:
        super().__init__()
        width = hidden_width(dims, width, expansion)
        self.up = Linear(dims.d_model, width, Role.FFN_IN, bias=dims.bias)
        self.down = Linear(width, dims.d_model, Role.FFN_OUT, bias=dims.bias)
        self.activation, self.clip = activation, clip
        self.hidden_dropout = nn.Dropout(dims.dropout if drop_hidden else 0.0)
        self.dropout = nn.Dropout(dims.dropout if drop_output else 0.0)

    def forward(self, x: Tensor, padding: Tensor | None = None) -> Tensor:
        hidden = self.activation(self.tap("hook_pre", self.up(x)))
        if self.clip is not None:
            hidden = hidden.clamp(-self.clip, self.clip)
        return self.dropout(self.down(self.tap("hook_post", self.hidden_dropout(hidden))))


class GLU(FFN):
    """dropout((act(xW_g + b_g) ⊙ (xW₁ + b₁))W₂ + b₂) (Shazeer 2020, arXiv:2002.05202).

    GLU with activation sigmoid, GEGLU with gelu, SwiGLU with silu, ReGLU with relu, bilinear with identity. Three
    matrices instead of two, so F = ⅔ · expansion · D keeps the parameters of an MLP with the same `expansion`, up to
    rounding.

    Args:
        expansion: F/D of the MLP with as many weights; 4 where neither it nor `width` is given.
        width: F itself, instead of `expansion`.

    Raises:
        ValueError: if the width is below 1.
    """

    places: ClassVar[Mapping[str, str]] = {**HIDDEN, "hook_pre_linear": "B T F"}

    def __init__(
        self, dims: Dims, *, activation: Activation, expansion: Positive | None = None, width: Count | None = None
    ) -> None:
        super().__init__()
        width = hidden_width(dims, width, expansion, share=2 / 3)
        self.gate = Linear(dims.d_model, width, Role.FFN_GATE, bias=dims.bias)
        self.up = Linear(dims.d_model, width, Role.FFN_IN, bias=dims.bias)
        self.down = Linear(width, dims.d_model, Role.FFN_OUT, bias=dims.bias)
        self.activation = activation
        self.dropout = nn.Dropout(dims.dropout)

    def forward(self, x: Tensor, padding: Tensor | None = None) -> Tensor:
        x = lowered(x)
        gates = self.activation(self.tap("hook_pre", self.gate(x)))
        hidden = gates * self.tap("hook_pre_linear", self.up(x))
        return self.dropout(self.down(self.tap("hook_post", hidden)))
