"""Rotary encoding stretched as in Llama 3.1."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from swapformer.model.context import Context
from swapformer.model.dims import Dims, require_positive
from swapformer.model.position.base import Position
from swapformer.model.position.rotary import Rotation
from swapformer.model.position.stretched import checked_factor, checked_length
from swapformer.model.tokens import Tokens


class Llama3Rotary(Position):
    """Rotary whose slow pairs are stretched by `factor`, and whose fast ones are not.

    ω_i = base^(−2i/R) · (γ_i + (1 − γ_i)/factor), where γ_i rises linearly from 0 for a pair that turns `turns_low`
    times within `original_len` positions to 1 for one that turns `turns_high` times, and is held at 0 and 1 beyond.
    Llama 3.1 (2024, arXiv:2407.21783).

    Args:
        base, fraction, interleaved: as in Rotary.
        factor: how many times longer sequences become.
        original_len: length of training, in tokens.
        turns_low, turns_high: turns within `original_len` below which pairs are stretched, and from which they stay.

    Raises:
        ValueError: if `turns_high` is not above `turns_low` > 0, or `factor` or `original_len` is below 1.
    """

    reads = ("head_dim",)

    def __init__(
        self,
        dims: Dims,
        *,
        base: float,
        fraction: float,
        interleaved: bool,
        factor: float,
        original_len: int,
        turns_low: float,
        turns_high: float,
    ) -> None:
        super().__init__(dims)
        require_positive(base=base)
        if not turns_high > turns_low > 0:
            raise ValueError(
                f"llama3 needs `turns_high` above `turns_low` above 0, but they are {turns_high} and {turns_low}."
            )
        self.rotation = Rotation(dims, fraction=fraction, interleaved=interleaved)
        self.base, self.factor, self.length = base, checked_factor(factor), checked_length(original_len)
        self.low, self.high = turns_low, turns_high

    def rotate(self, q: Tensor, k: Tensor, context: Context) -> tuple[Tensor, Tensor]:
        return self.rotation.both(self, q, k, context, self._angles)

    def _angles(self, tokens: Tokens, dtype: torch.dtype) -> Tensor:
        omega_I = self.rotation.frequencies(self.base, tokens.position.device, dtype)
        turns_I = self.length * omega_I / (2 * math.pi)
        kept_I = ((turns_I - self.low) / (self.high - self.low)).clamp(0, 1)
        return tokens.position[..., None].to(dtype) * omega_I * (kept_I + (1 - kept_I) / self.factor)
