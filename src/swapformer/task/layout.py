"""How items become sequences: tokens in a rectangle with gaps, and the same with the gaps closed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.nn.functional import pad


@dataclass(frozen=True, eq=False)
class Written:
    """Items as they are written, N rows of L places.

    `tokens` [N,L] int64; the filler marks gaps, which are closed. `scored` [N,L] bool: tokens that are determined by
    those before them, and so are answered for. `tags`: channels [N,L] of the tokens. `inputs` [N]: how many tokens are
    inputs (None: all but the last, which is a target only). All that tells items apart must be among inputs and
    targets: items that differ in what no model sees could be in several splits.
    """

    tokens: Tensor
    scored: Tensor
    tags: Mapping[str, Tensor] = field(default_factory=dict)
    inputs: Tensor | None = None


def close_gaps(kept: Tensor, values: Tensor, filler: int) -> Tensor:
    """Each row's kept values [N,L] in their order at the row's start, and `filler` behind them."""
    width = kept.shape[1]
    place = torch.where(kept, kept.cumsum(1) - 1, width)
    return values.new_full((len(values), width + 1), filler).scatter_(1, place, values)[:, :width]


def column(rows: int, token: int) -> Tensor:
    """The same token for every row [N,1]."""
    return torch.full((rows, 1), token)


def with_room(values: Tensor, filler: int) -> Tensor:
    """The values [N,L] and a column of filler, where the last token is an input too."""
    return pad(values, (0, 1), value=filler)


def padding_or_none(padding: Tensor) -> Tensor | None:
    """`padding` where there is any."""
    return padding if bool(padding.any()) else None
