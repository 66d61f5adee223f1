"""Extensions that change what heads compute: output gate, convolution, value residual, head mask."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated

import torch
from torch import Tensor, nn

from swapformer.model.context import Context
from swapformer.model.dims import Dims
from swapformer.model.extension.base import Extension, Projected
from swapformer.model.layers import Linear, Role
from swapformer.model.ops import Constants, causal_convolution, convolution_filters
from swapformer.ranges import Count, Natural, Within


class OutputGate(Extension):
    """heads ⊙ σ(x W_gᵀ) before the last matrix, W_g [H·V, D] (Qiu et al. 2025, arXiv:2505.06708, elementwise G1)."""

    def __init__(self, dims: Dims) -> None:
        self.gate = Linear(dims.d_model, dims.num_heads * dims.head_dim, Role.GATE, bias=False)

    def modules(self, query_width: int, key_width: int, value_width: int) -> Mapping[str, nn.Module]:
        return {"gate": self.gate}

    def output(self, heads: Tensor, x: Tensor) -> Tensor:
        return heads * self.gate(x).sigmoid()


class Convolution(Extension):
    """y_i + Σ_s f_s ⊙ y_{i−s} for queries, keys and values y: a causal depthwise convolution, f [W, C].

    Primer (So et al. 2021, arXiv:2109.08668, width 3). It starts as the identity and ends where a document begins;
    padding counts as zero.

    Args:
        width: W, in positions.

    Raises:
        ValueError: if `width` is below 1.
    """

    def __init__(self, dims: Dims, *, width: Count) -> None:
        self.width, self.sees_order = width, width > 1

    def modules(self, query_width: int, key_width: int, value_width: int) -> Mapping[str, nn.Module]:
        self.filters = convolution_filters(self.width, query_width, key_width, value_width)
        self.state_width = (self.width - 1) * (query_width + key_width + value_width)
        return {"filters": self.filters}

    def project(self, projected: Projected, context: Context, *, crosses: bool) -> Projected:
        """The convolved projections; with a cache they see the last projections before them as well."""
        q, k, v = projected
        query, key = context.query, context.key if crosses else context.query
        cache, kept = context.cache if self.width > 1 else None, self.width - 1
        if cache is not None and crosses:  # keys and values are the whole of the other sequence
            (q,) = cache.append(self, q, last=kept)
            assert cache.tokens is not None, "the queries are among the tokens read so far"
            query = cache.tokens.at(slice(-q.shape[-2], None))
        elif cache is not None:
            q, k, v = cache.append(self, q, k, v, last=kept)
            query = key = context.latest(q.shape[-2]).key
        q, k, v = map(causal_convolution, (q, k, v), self.filters, (query, key, key))
        q = q[:, -len(context.query) :]
        return (q, k, v) if crosses else (q, k[:, -len(context.query) :], v[:, -len(context.query) :])


class ValueResidual(Extension):
    """v ← (1 − λ) v + λ v₁, where v₁ are the values of the first layer that has this extension.

    Zhou et al. 2024 (arXiv:2410.17897), with λ = ½ in their identity form. All layers that have it need values of one
    shape.

    Args:
        share: λ; 0 leaves the values as they are.

    Raises:
        ValueError: if λ is not in [0, 1).
    """

    def __init__(self, dims: Dims, *, share: Annotated[float, Within("[0, 1)")]) -> None:
        self.share, self.shares_values = share, share > 0

    def values(self, v: Tensor, context: Context) -> Tensor:
        if not self.share:
            return v
        return torch.lerp(v, context.once("values of the first layer", lambda: v), self.share)


class HeadMask(Extension):
    """o_h ← 0 for some heads h: what attention is without them (Michel et al. 2019, arXiv:1905.10650, equation 1).

    Args:
        heads: query heads, counted from 0.

    Raises:
        ValueError: if there is no such head.
    """

    def __init__(self, dims: Dims, *, heads: Sequence[Natural]) -> None:
        if wrong := [head for head in heads if not 0 <= head < dims.num_heads]:
            raise ValueError(
                f"`heads` of head_mask must name heads from 0 to {dims.num_heads - 1}, but it names {wrong}."
            )
        self.masked, self.constants = tuple(heads), Constants()

    def heads(self, heads: Tensor) -> Tensor:
        if not self.masked:
            return heads
        return heads.index_fill(1, self.constants.of(self.masked, torch.int64, heads.device), 0.0)
