"""Rotary position encoding."""

from __future__ import annotations

import torch
from torch import Tensor

from swapformer.model.context import Context, Tokens
from swapformer.model.dims import Dims, require_positive, require_presence
from swapformer.model.position.base import Position


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

    def __init__(self, dims: Dims, *, base: float, fraction: float, interleaved: bool) -> None:
        super().__init__(dims)
        if not 0 < fraction <= 1:
            raise ValueError(f"`fraction` of rope must lie in (0, 1], but it is {fraction}.")
        require_positive(base=base)
        require_presence(interleaved=interleaved)
        self.width = int(dims.head_dim * fraction + 1e-9)
        if self.width < 2 or self.width % 2:
            raise ValueError(
                f"rope turns pairs, so fraction · head_dim must be even, but {fraction:g} · {dims.head_dim} gives "
                f"{self.width}; change `model.num_heads`, `model.head_dim` or `model.position.fraction`, or use alibi."
            )
        self.base, self.interleaved = base, interleaved

    def rotate(self, q: Tensor, k: Tensor, context: Context) -> tuple[Tensor, Tensor]:
        cos_q, sin_q = context.once(("rotary", self, "query"), lambda: self._turn(context.query, q.dtype))
        if context.key is context.query:
            cos_k, sin_k = cos_q, sin_q
        else:
            cos_k, sin_k = context.once(("rotary", self, "key"), lambda: self._turn(context.key, q.dtype))
        return self._turned(q, cos_q, sin_q), self._turned(k, cos_k, sin_k)

    def _turn(self, tokens: Tokens, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """cos and sin of the angles, each [B|1, 1, T, R], laid out for this pairing."""
        wide = torch.float64 if dtype == torch.float64 else torch.float32
        exponent = torch.arange(0, self.width, 2, device=tokens.position.device, dtype=wide) / self.width
        angle_BTI = tokens.position[..., None].to(wide) * self.base**-exponent
        angle = angle_BTI.repeat_interleave(2, dim=-1) if self.interleaved else torch.cat([angle_BTI, angle_BTI], -1)
        return angle.cos()[:, None].to(dtype), angle.sin()[:, None].to(dtype)

    def _turned(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        turning, still = (x, None) if self.width == x.shape[-1] else (x[..., : self.width], x[..., self.width :])
        if self.interleaved:
            crossed = torch.stack([-turning[..., 1::2], turning[..., ::2]], dim=-1).flatten(-2)
        else:
            first, second = turning.chunk(2, dim=-1)
            crossed = torch.cat([-second, first], dim=-1)
        turned = turning * cos + crossed * sin
        return turned if still is None else torch.cat([turned, still], dim=-1)
