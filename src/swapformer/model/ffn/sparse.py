"""Feed-forward layers with low-rank or block-sparse matrices, or with few active hidden units."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from torch import Tensor, nn

from swapformer.model.activation import Activation
from swapformer.model.dims import Dims
from swapformer.model.ffn.base import FFN, HIDDEN, hidden_width
from swapformer.model.layers import Linear, Role, StackedLinear
from swapformer.ranges import Count, Fraction, Positive


class LowRank(FFN):
    """dropout(act(xA₁B₁ + b₁)A₂B₂ + b₂), each matrix of an MLP a product of rank R.

    A₁ is [D, R], B₁ [R, F], A₂ [F, R], B₂ [R, D]: 2R(D + F) weights instead of 2DF (Wei et al. 2024,
    arXiv:2407.09835; Sainath et al. 2013). Only B₂ ends the branch: a scheme that zeroes the ends leaves A₂ as it is,
    so that gradients reach both.

    Args:
        expansion: F/D; 4 where neither it nor `width` is given.
        width: F itself, instead of `expansion`.
        rank: R.

    Raises:
        ValueError: if the width or the rank is below 1.
    """

    places: ClassVar[Mapping[str, str]] = HIDDEN

    def __init__(
        self,
        dims: Dims,
        *,
        activation: Activation,
        rank: Count,
        expansion: Positive | None = None,
        width: Count | None = None,
    ) -> None:
        super().__init__()
        width = hidden_width(dims, width, expansion)
        self.up = nn.Sequential(
            Linear(dims.d_model, rank, Role.FFN_IN, bias=False), Linear(rank, width, Role.FFN_IN, bias=dims.bias)
        )
        self.down = nn.Sequential(
            Linear(width, rank, Role.FFN_IN, bias=False), Linear(rank, dims.d_model, Role.FFN_OUT, bias=dims.bias)
        )
        self.activation = activation
        self.dropout = nn.Dropout(dims.dropout)

    def forward(self, x: Tensor, padding: Tensor | None = None) -> Tensor:
        hidden = self.activation(self.tap("hook_pre", self.up(x)))
        return self.dropout(self.down(self.tap("hook_post", hidden)))


class BlockSparse(FFN):
    """dropout(W₂ · P · act(W₁x + b₁) + b₂), with W₁, W₂ block-diagonal and P a fixed shuffle between them.

    S blocks of [D/S, F/S] and [F/S, D/S] hold 2DF/S weights. P deals the hidden units of each block out over all of
    them, so that every input reaches every output: the Monarch structure with a non-linearity inside (Dao et al. 2022,
    arXiv:2204.00595).

    Args:
        expansion: F/D; 4 where neither it nor `width` is given.
        width: F itself, instead of `expansion`.
        blocks: S.

    Raises:
        ValueError: if S does not divide D and F, or a block has fewer than S hidden units to deal out.
    """

    places: ClassVar[Mapping[str, str]] = HIDDEN

    def __init__(
        self,
        dims: Dims,
        *,
        activation: Activation,
        blocks: Count,
        expansion: Positive | None = None,
        width: Count | None = None,
    ) -> None:
        super().__init__()
        d_model, width = dims.d_model, hidden_width(dims, width, expansion)
        if blocks < 1 or d_model % blocks or width % blocks:
            raise ValueError(
                f"`blocks` must divide d_model and the feed-forward width, but {blocks} does not divide both {d_model} "
                f"and {width}; try 1, 2 or 4."
            )
        if width // blocks < blocks:
            raise ValueError(
                f"each of the {blocks} `blocks` must have at least {blocks} hidden units, one for every block, but has "
                f"{width // blocks}; use fewer blocks, or a larger width."
            )
        self.blocks = blocks
        self.up = StackedLinear(blocks, d_model // blocks, width // blocks, Role.FFN_IN, bias=dims.bias)
        self.down = StackedLinear(blocks, width // blocks, d_model // blocks, Role.FFN_OUT, bias=dims.bias)
        self.activation = activation
        self.dropout = nn.Dropout(dims.dropout)

    def forward(self, x: Tensor, padding: Tensor | None = None) -> Tensor:
        hidden = self.activation(self._tap("hook_pre", self.up(x.reshape(*x.shape[:-1], self.blocks, -1))))
        dealt = self._tap("hook_post", hidden.transpose(-1, -2).reshape(hidden.shape))
        return self.dropout(self.down(dealt).flatten(-2))

    def _tap(self, place: str, hidden: Tensor) -> Tensor:
        """A tap that shows [B, T, S, F/S] as [B, T, F]."""
        return self.tap_as(place, hidden, lambda x: x.flatten(-2), lambda x: x.view(hidden.shape))


class TopK(FFN):
    """dropout(top(act(xW₁ + b₁))W₂ + b₂), where top keeps the k largest activations of each token and zeroes the rest.

    k = max(1, round(fraction · F)); ties with the k-th are kept (Li et al. 2023, arXiv:2210.06313, section 4).

    Args:
        expansion: F/D; 4 where neither it nor `width` is given.
        width: F itself, instead of `expansion`.
        fraction: share of the activations that is kept, in (0, 1].

    Raises:
        ValueError: if the width is below 1 or the fraction outside (0, 1].
    """

    places: ClassVar[Mapping[str, str]] = HIDDEN

    def __init__(
        self,
        dims: Dims,
        *,
        activation: Activation,
        fraction: Fraction,
        expansion: Positive | None = None,
        width: Count | None = None,
    ) -> None:
        super().__init__()
        width = hidden_width(dims, width, expansion)
        self.active = max(1, round(fraction * width))
        self.up = Linear(dims.d_model, width, Role.FFN_IN, bias=dims.bias)
        self.down = Linear(width, dims.d_model, Role.FFN_OUT, bias=dims.bias)
        self.activation = activation
        self.dropout = nn.Dropout(dims.dropout)

    def forward(self, x: Tensor, padding: Tensor | None = None) -> Tensor:
        hidden = self.activation(self.tap("hook_pre", self.up(x)))
        least = hidden.topk(self.active, dim=-1).values[..., -1:]
        return self.dropout(self.down(self.tap("hook_post", hidden.masked_fill(hidden < least, 0.0))))
