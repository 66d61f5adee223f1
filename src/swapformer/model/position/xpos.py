"""Extrapolatable rotary position encoding."""

from __future__ import annotations

import torch
from torch import Tensor

from swapformer.model.context import Context
from swapformer.model.dims import Dims
from swapformer.model.position.base import Position, wide
from swapformer.model.position.rotary import Rotation, Table
from swapformer.model.tokens import Tokens


class XPos(Position):
    """Rotary with queries times ζ_i^(p/span) and keys times ζ_i^(−p/span), so that logits fade with distance.

    ζ_i = (2i/E + γ)/(1 + γ) for pair i of a head of E dimensions, so q_m·k_n gets the factor ζ_i^((m−n)/span): fast
    pairs fade first. Sun et al. 2022, arXiv:2212.10554. Made for causal attention: a key that comes later is amplified.

    Args:
        base: the longest wavelength is about 2π·base positions.
        interleaved: pairs are neighbours (2i, 2i+1), as in the paper; otherwise (i, i + E/2).
        gamma: γ; the larger, the slower the fastest pairs fade.
        span: positions over which pair i fades to ζ_i.

    Raises:
        ValueError: if the width of a head is odd, or `gamma` or `span` is not above 0.
    """

    reads = ("head_dim",)

    def __init__(self, dims: Dims, *, base: float, interleaved: bool, gamma: float, span: float) -> None:
        super().__init__(dims)
        if gamma <= 0 or span <= 0:
            raise ValueError(f"`gamma` and `span` of xpos must be above 0, but they are {gamma} and {span}.")
        self.rotation = Rotation(dims, fraction=1.0, interleaved=interleaved)
        self.base, self.gamma, self.span = base, gamma, span

    def rotate(self, q: Tensor, k: Tensor, context: Context) -> tuple[Tensor, Tensor]:
        of_query = context.once(("xpos", self, "query", q.dtype), lambda: self._table(context.query, q.dtype, 1))
        of_key = context.once(("xpos", self, "key", q.dtype), lambda: self._table(context.key, q.dtype, -1))
        return self.rotation.turn(q, of_query), self.rotation.turn(k, of_key)

    def _table(self, tokens: Tokens, dtype: torch.dtype, sign: int) -> Table:
        precision, width = wide(dtype), self.rotation.width
        place = tokens.position[..., None].to(precision)
        omega_I = self.rotation.frequencies(self.base, place.device, precision)
        pair_I = torch.arange(0, width, 2, device=place.device, dtype=precision)
        zeta_I = (pair_I / width + self.gamma) / (1 + self.gamma)
        return self.rotation.table(place * omega_I, dtype, zeta_I ** (sign * place / self.span))
