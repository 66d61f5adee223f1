"""Rotary encodings stretched to sequences longer than those of training: linear, NTK-aware, YaRN and Llama 3.1."""

from __future__ import annotations

import math
from functools import partial

import torch
from torch import Tensor

from swapformer.model.context import Context
from swapformer.model.dims import Dims
from swapformer.model.position.base import Position
from swapformer.model.position.rotary import Rotation
from swapformer.model.tokens import Tokens
from swapformer.ranges import Count, Factor, Fraction, NonNegative, Positive


def _raised_base(base: float, stretch: float, width: int) -> float:
    """base · stretch^(R/(R−2)), with which the slowest pair turns as if positions were divided by `stretch`."""
    if width < 4:
        raise ValueError(
            f"an NTK-aware base needs at least 4 turning dimensions of a head, but there are {width}; "
            "use fewer heads or model/position=rope_linear."
        )
    return float(base * stretch ** (width / (width - 2)))


class LinearRotary(Position):
    """Rotary with positions divided by `factor`: θ_i(p) = (p / factor) · base^(−2i/R).

    Position interpolation, Chen et al. 2023, arXiv:2306.15595. Everything else as in Rotary.

    Args:
        base, fraction, interleaved: as in Rotary.
        factor: how many times longer sequences become.
    """

    reads = ("head_dim",)

    def __init__(
        self,
        dims: Dims,
        *,
        base: Positive,
        fraction: Fraction,
        interleaved: bool,
        factor: Factor,
    ) -> None:
        super().__init__(dims)
        self.rotation = Rotation(dims, fraction=fraction, interleaved=interleaved)
        self.base, self.factor = base, factor

    def rotate(self, q: Tensor, k: Tensor, context: Context) -> tuple[Tensor, Tensor]:
        return self.rotation.rotate(self, q, k, context, self._angles)

    def _angles(self, tokens: Tokens, dtype: torch.dtype) -> Tensor:
        omega_I = self.rotation.frequencies(self.base, tokens.position.device, dtype)
        return tokens.position[..., None].to(dtype) / self.factor * omega_I


class NTKRotary(Position):
    """Rotary with base · factor^(R/(R−2)) for base: the slowest pair is stretched by `factor`, the fastest not at all.

    NTK-aware scaling (bloc97 2023; Peng et al. 2023, arXiv:2309.00071, section 3.1). Everything else as in Rotary.

    Args:
        base, fraction, interleaved: as in Rotary.
        factor: how many times longer sequences become.
    """

    reads = ("head_dim",)

    def __init__(
        self,
        dims: Dims,
        *,
        base: Positive,
        fraction: Fraction,
        interleaved: bool,
        factor: Factor,
    ) -> None:
        super().__init__(dims)
        self.rotation = Rotation(dims, fraction=fraction, interleaved=interleaved)
        self.base = _raised_base(base, factor, self.rotation.width)

    def rotate(self, q: Tensor, k: Tensor, context: Context) -> tuple[Tensor, Tensor]:
        return self.rotation.rotate(self, q, k, context, partial(self.rotation.angles, self.base))


class DynamicNTKRotary(Position):
    """Rotary that changes nothing up to `original_len` keys, and beyond it raises the base with the number of keys K.

    stretch = factor · K/original_len − (factor − 1), base · stretch^(R/(R−2)) for base. Dynamic NTK scaling (emozilla
    2023; Peng et al. 2023, arXiv:2309.00071, section 3.3). Assumes that K keys have K neighbouring positions;
    since all are turned again when there are more of them, none is cached.

    Args:
        base, fraction, interleaved: as in Rotary.
        factor: how fast the base grows beyond the length of training.
        original_len: length of training, in tokens.
    """

    reads = ("head_dim",)
    depends_on_length = True

    def __init__(
        self,
        dims: Dims,
        *,
        base: Positive,
        fraction: Fraction,
        interleaved: bool,
        factor: Factor,
        original_len: Count,
    ) -> None:
        super().__init__(dims)
        self.rotation = Rotation(dims, fraction=fraction, interleaved=interleaved)
        _raised_base(base, 1.0, self.rotation.width)
        self.base, self.factor, self.original_len = base, factor, original_len

    def rotate(self, q: Tensor, k: Tensor, context: Context) -> tuple[Tensor, Tensor]:
        length = max(len(context.key), self.original_len)
        base = _raised_base(self.base, self.factor * length / self.original_len - self.factor + 1, self.rotation.width)
        return self.rotation.rotate(self, q, k, context, partial(self.rotation.angles, base))


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
        base: Positive,
        fraction: Fraction,
        interleaved: bool,
        factor: Factor,
        original_len: Count,
        beta_fast: Positive,
        beta_slow: Positive,
        temperature: NonNegative,
        rounded: bool,
    ) -> None:
        super().__init__(dims)
        if not beta_fast > beta_slow > 0:
            raise ValueError(
                f"yarn needs `beta_fast` above `beta_slow` above 0, but they are {beta_fast} and {beta_slow}."
            )
        self.rotation = Rotation(dims, fraction=fraction, interleaved=interleaved)
        self.base, self.factor, self.original_len = base, factor, original_len
        # The index i of the pair that turns so many times within `original_len` positions.
        per_turn = [original_len / (turns * 2 * math.pi) for turns in (beta_fast, beta_slow)]
        ends = [self.rotation.width * math.log(length) / (2 * math.log(base)) for length in per_turn]
        if rounded:
            ends = [math.floor(ends[0]), math.ceil(ends[1])]
        self.first, self.last = max(ends[0], 0), min(ends[1], self.rotation.width - 1)
        self.amplitude = 1 + temperature * math.log(factor)

    def rotate(self, q: Tensor, k: Tensor, context: Context) -> tuple[Tensor, Tensor]:
        return self.rotation.rotate(self, q, k, context, self._angles, self.amplitude)

    def _angles(self, tokens: Tokens, dtype: torch.dtype) -> Tensor:
        omega_I = self.rotation.frequencies(self.base, tokens.position.device, dtype)
        pair_I = torch.arange(len(omega_I), device=omega_I.device, dtype=dtype)
        ramp_I = ((pair_I - self.first) / max(self.last - self.first, 1e-3)).clamp(0, 1)
        return tokens.position[..., None].to(dtype) * omega_I * (ramp_I / self.factor + 1 - ramp_I)


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
        base: Positive,
        fraction: Fraction,
        interleaved: bool,
        factor: Factor,
        original_len: Count,
        turns_low: Positive,
        turns_high: Positive,
    ) -> None:
        super().__init__(dims)
        if not turns_high > turns_low > 0:
            raise ValueError(
                f"llama3 needs `turns_high` above `turns_low` above 0, but they are {turns_high} and {turns_low}."
            )
        self.rotation = Rotation(dims, fraction=fraction, interleaved=interleaved)
        self.base, self.factor, self.original_len = base, factor, original_len
        self.low, self.high = turns_low, turns_high

    def rotate(self, q: Tensor, k: Tensor, context: Context) -> tuple[Tensor, Tensor]:
        return self.rotation.rotate(self, q, k, context, self._angles)

    def _angles(self, tokens: Tokens, dtype: torch.dtype) -> Tensor:
        omega_I = self.rotation.frequencies(self.base, tokens.position.device, dtype)
        turns_I = self.original_len * omega_I / (2 * math.pi)
        share_I = ((turns_I - self.low) / (self.high - self.low)).clamp(0, 1)
        return tokens.position[..., None].to(dtype) * omega_I * (share_I + (1 - share_I) / self.factor)
