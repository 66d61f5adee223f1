"""Norms of queries, keys and values, applied before rotation."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional

from swapformer.model.dims import Dims
from swapformer.model.layers import gain
from swapformer.model.ops import widen
from swapformer.ranges import Declared, Positive


class QKNorm(Declared, nn.Module):
    """Base of the slot: queries [B, H, Q, E], keys and values [B, G, K, E] stay as they are.

    Facts:
        of_lengths: it changes only the lengths of queries and keys.
    """

    of_lengths: bool = False

    def __init__(self, dims: Dims) -> None:
        super().__init__()

    def sized(self, num_kv_heads: int) -> QKNorm:
        """This norm for G heads of keys and values, a number that the attention sets; G = H before it is called."""
        return self

    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return q, k, v


class L2(QKNorm):
    """q ← g · q/‖q‖, k ← k/‖k‖ by head, with one learned scalar g (Henry et al. 2020, arXiv:2010.04245).

    g replaces 1/√E: the paper's logits g · q·k need model/score=dot_unscaled.

    Args:
        start: g at initialisation; the paper takes log₂(T² − T) for sequences of T tokens.
        eps: floor of the lengths.
        values: whether values are divided by their length too.
    """

    of_lengths = True

    def __init__(self, dims: Dims, *, start: Positive, eps: Positive, values: bool) -> None:
        super().__init__(dims)
        self.eps, self.values = eps, values
        self.gain = gain(1, start=start)

    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        q, k = (functional.normalize(x, dim=-1, eps=self.eps) for x in (q, k))
        return self.gain * q, k, functional.normalize(v, dim=-1, eps=self.eps) if self.values else v


def rms_norm(x: Tensor, weight: Tensor | None, eps: float) -> Tensor:
    """x / √(mean(x²) + ε) over the last axis, statistics in float32 or wider, times a weight where there is one."""
    normed = functional.rms_norm(widen(x), x.shape[-1:], None, eps).to(x.dtype)
    return normed if weight is None else normed * weight


class HeadRMSNorm(QKNorm):
    """RMSNorm of each head's q and k over E, one γ for all heads (Qwen3 2025, arXiv:2505.09388).

    Args:
        eps: ε, in squared units of q and k.
        affine: whether γ exists.
        values: whether values are normed too, with a γ of their own.
    """

    def __init__(self, dims: Dims, *, eps: Positive, affine: bool, values: bool) -> None:
        super().__init__(dims)
        self.eps, self.values = eps, values
        self.query = gain(dims.head_dim, start=1.0) if affine else None
        self.key = gain(dims.head_dim, start=1.0) if affine else None
        self.value = gain(dims.head_dim, start=1.0) if affine and values else None

    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        q, k = rms_norm(q, self.query, self.eps), rms_norm(k, self.key, self.eps)
        return q, k, rms_norm(v, self.value, self.eps) if self.values else v


class WidthRMSNorm(QKNorm):
    """RMSNorm of q over all H·E and of k over all G·E features of a token (OLMo 2 2024, arXiv:2501.00656).

    Args:
        eps: ε, in squared units of q and k.
        affine: whether γ exists, with an entry for each feature.
        values: whether values are normed too, with a γ of their own.
    """

    def __init__(self, dims: Dims, *, eps: Positive, affine: bool, values: bool) -> None:
        super().__init__(dims)
        self.eps, self.values, self.affine, self.head_dim = eps, values, affine, dims.head_dim
        self.query = gain(dims.num_heads * dims.head_dim, start=1.0) if affine else None
        self.sized(dims.num_heads)

    def sized(self, num_kv_heads: int) -> QKNorm:
        width = num_kv_heads * self.head_dim
        self.key = gain(width, start=1.0) if self.affine else None
        self.value = gain(width, start=1.0) if self.affine and self.values else None
        return self

    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        q, k = self._norm(q, self.query), self._norm(k, self.key)
        return q, k, self._norm(v, self.value) if self.values else v

    def _norm(self, x_BHTE: Tensor, weight: Tensor | None) -> Tensor:
        heads_last = x_BHTE.transpose(1, 2)
        return rms_norm(heads_last.flatten(2), weight, self.eps).view(heads_last.shape).transpose(1, 2)
