"""Rotary position encoding and xPos, and the rotation of pairs that all rotary encodings share."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from swapformer.model.context import Context
from swapformer.model.dims import Dims
from swapformer.model.position.base import Position, wide
from swapformer.model.tokens import Tokens
from swapformer.ranges import Fraction, Positive

Table = tuple[Tensor, Tensor]
"""cos and sin of the angles, each [B|1, 1, T, R], laid out for a pairing."""

Angles = Callable[[Tokens, torch.dtype], Tensor]
"""Tokens and a precision → angles in radians, [B|1, T, R/2]."""


class Rotation:
    """Turns the pairs among the first R = fraction · head_dim dimensions of a head; the others stay.

    Args:
        dims: sizes.
        fraction: share of a head's dimensions that turn.
        interleaved: pairs are neighbours (2i, 2i+1); otherwise (i, i + R/2).

    Raises:
        ValueError: if R is not an even number of at least 2, or `fraction` is not in (0, 1].
    """

    def __init__(self, dims: Dims, *, fraction: Fraction, interleaved: bool) -> None:
        self.width = int(dims.head_dim * fraction + 1e-9)
        if self.width < 2 or self.width % 2:
            raise ValueError(
                f"rope turns pairs, so fraction · head_dim must be even, but {fraction:g} · {dims.head_dim} gives "
                f"{self.width}; change `model.num_heads`, `model.head_dim` or `model.position.fraction`, or use alibi."
            )
        self.interleaved = interleaved

    def frequencies(self, base: float, device: torch.device, dtype: torch.dtype) -> Tensor:
        """ω_i = base^(−2i/R) in radians per position, [R/2]."""
        exponent = torch.arange(0, self.width, 2, device=device, dtype=dtype) / self.width
        return base**-exponent

    def angles(self, base: float, tokens: Tokens, dtype: torch.dtype) -> Tensor:
        """θ_i(p) = p · base^(−2i/R), [B|1, T, R/2]."""
        return tokens.position[..., None].to(dtype) * self.frequencies(base, tokens.position.device, dtype)

    def rotate(
        self, owner: Position, q: Tensor, k: Tensor, context: Context, angles: Angles, amplitude: float = 1.0
    ) -> tuple[Tensor, Tensor]:
        """Turn q and k by the angles of their positions, from tables that the context computes once for `owner`."""

        def table(tokens: Tokens) -> Table:
            return self.table(angles(tokens, wide(q.dtype)), q.dtype, amplitude)

        of_query = context.once(("rotary", owner, "query", q.dtype), lambda: table(context.query))
        if context.key is context.query:
            of_key = of_query
        else:
            of_key = context.once(("rotary", owner, "key", q.dtype), lambda: table(context.key))
        return self.turn(q, of_query), self.turn(k, of_key)

    def table(self, angle_BTI: Tensor, dtype: torch.dtype, amplitude: float | Tensor) -> Table:
        """amplitude · cos and amplitude · sin of the angles, laid out for this pairing."""
        return self._laid_out(angle_BTI.cos() * amplitude, dtype), self._laid_out(angle_BTI.sin() * amplitude, dtype)

    def turn(self, x: Tensor, table: Table) -> Tensor:
        """(x₁, x₂) → (x₁·cos − x₂·sin, x₂·cos + x₁·sin) for every pair."""
        cos, sin = table
        turning, still = (x, None) if self.width == x.shape[-1] else (x[..., : self.width], x[..., self.width :])
        if x.element_size() < 4 and not cos.requires_grad:
            turned: Tensor = _Turn.apply(turning, cos, sin, self.interleaved)  # type: ignore[no-untyped-call]
            return turned if still is None else torch.cat([turned, still], dim=-1)
        if self.interleaved:
            crossed = torch.stack([-turning[..., 1::2], turning[..., ::2]], dim=-1).flatten(-2)
        else:
            first, second = turning.chunk(2, dim=-1)
            crossed = torch.cat([-second, first], dim=-1)
        turned = turning * cos + crossed * sin
        return turned if still is None else torch.cat([turned, still], dim=-1)

    def _laid_out(self, value_BTI: Tensor, dtype: torch.dtype) -> Tensor:
        pairs = value_BTI.repeat_interleave(2, dim=-1) if self.interleaved else torch.cat([value_BTI, value_BTI], -1)
        return pairs[:, None].to(dtype)


class _Turn(torch.autograd.Function):
    """Turned pairs of 16-bit numbers, in three operations, which round twice.

    The gradient is turned back.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, cos: Tensor, sin: Tensor, interleaved: bool) -> Tensor:
        ctx.save_for_backward(cos, sin)
        ctx.interleaved = interleaved
        return _turned(x, cos, sin, interleaved, 1.0)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None]:
        cos, sin = ctx.saved_tensors
        return _turned(grad, cos, sin, ctx.interleaved, -1.0), None, None, None


def _turned(x: Tensor, cos: Tensor, sin: Tensor, interleaved: bool, sign: float) -> Tensor:
    out = x * cos
    (first, second), (here, there), (of_first, of_second) = (
        (each[..., ::2], each[..., 1::2]) if interleaved else each.chunk(2, dim=-1) for each in (x, out, sin)
    )
    here.addcmul_(second, of_first, value=-sign)
    there.addcmul_(first, of_second, value=sign)
    return out


class Rotary(Position):
    """Turn pair i of each query and key by the angle θ_i(p) = p · base^(−2i/R), so that q·k depends on m − n only.

    (x₁, x₂) → (x₁·cos θ − x₂·sin θ, x₂·cos θ + x₁·sin θ) over the first R = fraction · head_dim dimensions of a head;
    the others stay. Su et al. 2021, arXiv:2104.09864. Angles are computed in float32 or wider.

    Args:
        base: the longest wavelength is about 2π·base positions.
        fraction: share of a head's dimensions that turn (GPT-NeoX and GPT-J turn a part).
        interleaved: pairs are neighbours (2i, 2i+1), as in the paper and GPT-J; otherwise (i, i + R/2), as in GPT-NeoX
            and Llama. The two differ by a fixed permutation of dimensions.

    Raises:
        ValueError: if R is not an even number of at least 2, or `fraction` is not in (0, 1].
    """

    reads = ("head_dim",)

    def __init__(self, dims: Dims, *, base: Positive, fraction: Fraction, interleaved: bool) -> None:
        super().__init__(dims)
        self.rotation = Rotation(dims, fraction=fraction, interleaved=interleaved)
        self.base = base

    def rotate(self, q: Tensor, k: Tensor, context: Context) -> tuple[Tensor, Tensor]:
        return self.rotation.rotate(self, q, k, context, partial(self.rotation.angles, self.base))


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

    def __init__(self, dims: Dims, *, base: Positive, interleaved: bool, gamma: Positive, span: Positive) -> None:
        super().__init__(dims)
        self.rotation = Rotation(dims, fraction=1.0, interleaved=interleaved)
        self.base, self.gamma, self.span = base, gamma, span

    def rotate(self, q: Tensor, k: Tensor, context: Context) -> tuple[Tensor, Tensor]:
        of_query = context.once(("xpos", self, "query", q.dtype), lambda: self._table(context.query, q.dtype, 1))
        of_key = context.once(("xpos", self, "key", q.dtype), lambda: self._table(context.key, q.dtype, -1))
        return self.rotation.turn(q, of_query), self.rotation.turn(k, of_key)

    def _table(self, tokens: Tokens, dtype: torch.dtype, sign: int) -> Table:
        precision, width = wide(dtype), self.rotation.width
        position = tokens.position[..., None].to(precision)
        omega_I = self.rotation.frequencies(self.base, position.device, precision)
        pair_I = torch.arange(0, width, 2, device=position.device, dtype=precision)
        zeta_I = (pair_I / width + self.gamma) / (1 + self.gamma)
        return self.rotation.table(position * omega_I, dtype, zeta_I ** (sign * position / self.span))
