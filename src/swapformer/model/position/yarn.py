"""Rotary encoding stretched pair by pair."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from swapformer.model.context import Context
from swapformer.model.dims import Dims
from swapformer.model.position.base import Position
from swapformer.model.position.rotary import Rotation
from swapformer.model.position.stretched import checked_factor, checked_length
from swapformer.model.tokens import Tokens


class YaRN(Position):
    """Rotary whose slow pairs are stretched by `factor`, whose fast ones are not, and whose logits grow a little.

    ω_i = base^(−2i/R) · (γ_i/factor + 1 − γ_i), with γ rising linearly in i from 0 at the pair that turns `beta_fast`
    times within `original_len` positions to 1 at the one that turns `beta_slow` times; q and k are multiplied by
    1 + temperature · ln(factor). Peng et al. 2023, arXiv:2309.00071, with the ramp over pairs of the authors' code
    (the paper's equation has it over turns).

    Args:
        base, fraction, interleaved: as in Rotary.
        factor: how many times longer sequences become.
        original_len: length of training, in tokens.
        beta_fast, beta_slow: turns within `original_len` from which pairs stay, and below which they are stretched.
        temperature: growth of queries and keys with ln(factor).
        rounded: whether the ends of the ramp are moved outwards to whole pairs, as in the authors' code.

    Raises:
        ValueError: if `beta_fast` is not above `beta_slow` > 0, or `factor` is below 1.
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
        beta_fast: float,
        beta_slow: float,
        temperature: float,
        rounded: bool,
    ) -> None:
        super().__init__(dims)
        if not beta_fast > beta_slow > 0:
            raise ValueError(
                f"yarn needs `beta_fast` above `beta_slow` above 0, but they are {beta_fast} and {beta_slow}."
            )
        self.rotation = Rotation(dims, fraction=fraction, interleaved=interleaved)
        self.base, self.factor = base, checked_factor(factor)
        ends = [self._pair(turns, checked_length(original_len)) for turns in (beta_fast, beta_slow)]
        if rounded:
            ends = [math.floor(ends[0]), math.ceil(ends[1])]
        self.first, self.last = max(ends[0], 0), min(ends[1], self.rotation.width - 1)
        self.amplitude = 1 + temperature * math.log(factor)

    def rotate(self, q: Tensor, k: Tensor, context: Context) -> tuple[Tensor, Tensor]:
        return self.rotation.both(self, q, k, context, self._angles, self.amplitude)

    def _pair(self, turns: float, length: int) -> float:
        """The index i of the pair that turns so many times within `length` positions."""
        return self.rotation.width * math.log(length / (turns * 2 * math.pi)) / (2 * math.log(self.base))

    def _angles(self, tokens: Tokens, dtype: torch.dtype) -> Tensor:
        omega_I = self.rotation.frequencies(self.base, tokens.position.device, dtype)
        pair_I = torch.arange(len(omega_I), device=omega_I.device, dtype=dtype)
        ramp_I = ((pair_I - self.first) / max(self.last - self.first, 1e-3)).clamp(0, 1)
        return tokens.position[..., None].to(dtype) * omega_I * (ramp_I / self.factor + 1 - ramp_I)
