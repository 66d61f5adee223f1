"""Absolute encodings: a vector for each position, added to the embeddings."""

from __future__ import annotations

import torch
from torch import Tensor

from swapformer.model.dims import Dims
from swapformer.model.layers import Embedding, Role
from swapformer.model.position.base import Position, wide
from swapformer.model.tokens import Tokens
from swapformer.ranges import Positive, Several


class Sinusoidal(Position):
    """PE(p, 2i) = amplitude · sin(p · base^(−2i/D)), PE(p, 2i+1) = amplitude · cos(p · base^(−2i/D)).

    Vaswani et al. 2017, arXiv:1706.03762, section 3.5. Computed for the positions at hand, so there is no table to
    outgrow. Next to embeddings with a small deviation an amplitude of 1 dominates: see `embedding_scale`.

    Args:
        base: the longest wavelength is 2π·base positions.
        amplitude: factor on the encoding.

    Raises:
        ValueError: if `d_model` is odd.
    """

    embeds = True
    relative = False
    reads = ()

    def __init__(self, dims: Dims, *, base: Positive, amplitude: Positive) -> None:
        super().__init__(dims)
        if dims.d_model % 2:
            raise ValueError(f"sinusoidal positions need an even `d_model`, but it is {dims.d_model}; make it even.")
        self.base, self.amplitude = base, amplitude

    def embed(self, x: Tensor, tokens: Tokens) -> Tensor:
        width = x.shape[-1]
        angle_BTI = tokens.position[..., None].double() * self.frequencies(width, x.device)
        table = torch.stack([angle_BTI.sin(), angle_BTI.cos()], dim=-1).flatten(-2)
        return x + (self.amplitude * table).to(x.dtype)

    def frequencies(self, width: int, device: torch.device) -> Tensor:
        """ω_i = base^(−2i/D) in radians per position, float64 [D/2]."""
        return self.base ** (-torch.arange(0, width, 2, device=device, dtype=torch.float64) / width)


class Learned(Position):
    """x_t + P[position_t], with a learned table P [max_len, D] (BERT 2018, arXiv:1810.04805; GPT-2 2019).

    Raises:
        ValueError: for a position beyond the table.
    """

    embeds = True
    relative = False
    reads = ()

    def __init__(self, dims: Dims) -> None:
        super().__init__(dims)
        self.table = Embedding(dims.max_len, dims.d_model, Role.POSITION_EMBEDDING)
        self.limit = dims.max_len

    def embed(self, x: Tensor, tokens: Tokens) -> Tensor:
        if tokens.extent > self.table.weight.shape[0]:
            raise ValueError(
                f"a learned position table must cover every position, but position {tokens.extent - 1} lies beyond its "
                f"{self.table.weight.shape[0]} rows; raise `model.max_len`, or use rope, alibi, t5 or none."
            )
        return x + self.table(tokens.position)


class LearnedInterpolated(Position):
    """x_t + P[position_t], with a learned table P [rows, D] that is stretched over longer sequences.

    When positions reach beyond the table, position p reads it at p · (rows − 1)/(extent − 1), linearly between the two
    rows around, so that its ends stay ends; extent is one more than the largest position. The tables of ViT are
    stretched so (Dosovitskiy et al. 2021, arXiv:2010.11929, section 3.2). Assumes that the whole sequence is at hand:
    one more token moves all of them.

    Args:
        rows: positions that the table holds; the training length, for nothing is stretched within it.

    Raises:
        ValueError: if the table has fewer than 2 rows.
    """

    embeds = True
    relative = False
    depends_on_length = True
    reads = ()

    def __init__(self, dims: Dims, *, rows: Several) -> None:
        super().__init__(dims)
        self.table = Embedding(rows, dims.d_model, Role.POSITION_EMBEDDING)

    def embed(self, x: Tensor, tokens: Tokens) -> Tensor:
        last = self.table.weight.shape[0] - 1
        if tokens.extent - 1 <= last:
            return x + self.table(tokens.position)
        row_BT = tokens.position.to(wide(x.dtype)) * (last / (tokens.extent - 1))
        below = row_BT.floor().long().clamp(max=last - 1)
        share = (row_BT - below)[..., None].to(x.dtype)
        return x + torch.lerp(self.table(below), self.table(below + 1), share)
