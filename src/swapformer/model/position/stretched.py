"""Rotary encodings stretched to sequences that are longer than those of training."""

from __future__ import annotations

import torch
from torch import Tensor

from swapformer.model.context import Context
from swapformer.model.dims import Dims
from swapformer.model.position.base import Position
from swapformer.model.position.rotary import Rotation
from swapformer.model.tokens import Tokens


def checked_factor(factor: float) -> float:
    """The factor of a stretch, or ValueError."""
    if factor < 1:
        raise ValueError(f"`factor` says how many times longer sequences become, at least 1, but it is {factor}.")
    return factor


def checked_length(length: int) -> int:
    """The length of training, or ValueError."""
    if length < 1:
        raise ValueError(f"`original_len` is the length of training, at least 1, but it is {length}.")
    return length


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

    def __init__(self, dims: Dims, *, base: float, fraction: float, interleaved: bool, factor: float) -> None:
        super().__init__(dims)
        self.rotation = Rotation(dims, fraction=fraction, interleaved=interleaved)
        self.base, self.factor = base, checked_factor(factor)

    def rotate(self, q: Tensor, k: Tensor, context: Context) -> tuple[Tensor, Tensor]:
        return self.rotation.both(self, q, k, context, self._angles)

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

    def __init__(self, dims: Dims, *, base: float, fraction: float, interleaved: bool, factor: float) -> None:
        super().__init__(dims)
        self.rotation = Rotation(dims, fraction=fraction, interleaved=interleaved)
        self.base = _raised_base(base, checked_factor(factor), self.rotation.width)

    def rotate(self, q: Tensor, k: Tensor, context: Context) -> tuple[Tensor, Tensor]:
        return self.rotation.both(self, q, k, context, self._angles)

    def _angles(self, tokens: Tokens, dtype: torch.dtype) -> Tensor:
        omega_I = self.rotation.frequencies(self.base, tokens.position.device, dtype)
        return tokens.position[..., None].to(dtype) * omega_I


class DynamicNTKRotary(Position):
    """Rotary that changes nothing up to `original_len` keys, and beyond it raises the base with the number of keys K.

    stretch = factor · K/original_len − (factor − 1), base · stretch^(R/(R−2)) for base. Dynamic NTK scaling (emozilla
    2023; Peng et al. 2023, arXiv:2309.00071, section 3.3). Assumes that K keys stand at K neighbouring positions, and
    that keys are turned anew when there are more of them.

    Args:
        base, fraction, interleaved: as in Rotary.
        factor: how fast the base grows beyond the length of training.
        original_len: length of training, in tokens.
    """

    reads = ("head_dim",)
    depends_on_length = True

    def __init__(
        self, dims: Dims, *, base: float, fraction: float, interleaved: bool, factor: float, original_len: int
    ) -> None:
        super().__init__(dims)
        self.rotation = Rotation(dims, fraction=fraction, interleaved=interleaved)
        _raised_base(base, 1.0, self.rotation.width)
        self.base, self.factor, self.original_len = base, checked_factor(factor), checked_length(original_len)

    def rotate(self, q: Tensor, k: Tensor, context: Context) -> tuple[Tensor, Tensor]:
        length = max(len(context.key), self.original_len)
        base = _raised_base(self.base, self.factor * length / self.original_len - self.factor + 1, self.rotation.width)

        def angles(tokens: Tokens, dtype: torch.dtype) -> Tensor:
            omega_I = self.rotation.frequencies(base, tokens.position.device, dtype)
            return tokens.position[..., None].to(dtype) * omega_I

        return self.rotation.both(self, q, k, context, angles)
