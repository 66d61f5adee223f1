"""Multi-head latent attention: keys and values are made from one short vector for each token."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from swapformer.model.attention.base import Attention
from swapformer.model.attention.common import SCORED, attend, project_heads, split_heads, tap_heads, with_cached
from swapformer.model.context import Context
from swapformer.model.dims import Dims
from swapformer.model.kernel import AttentionPlan, Kernel
from swapformer.model.layers import Linear, Role, gain
from swapformer.model.normaliser import Normaliser
from swapformer.model.pattern import Pattern
from swapformer.model.position import Position
from swapformer.model.qk_norm import rms_norm
from swapformer.model.score import Score
from swapformer.ranges import Count, Positive


class MLA(Attention):
    """Multi-head latent attention: c_j and r_j are all that is cached of token j.

    c_j = norm(W_c y_j) [kv_rank], r_j = rotate(W_r y_j) [R], k_hj = [W_kh c_j; r_j], v_hj = W_vh c_j,
    q_hi = [a_hi; rotate(b_hi)] with [a_hi; b_hi] = W_qh x_i, or W_qh norm(W_d x_i) where `query_rank` compresses x_i.
    DeepSeek-AI 2024 (DeepSeek-V2, arXiv:2405.04434, section 2.1). y is x, or the memory that is attended to. Queries
    and keys have E dimensions, of which the position rotates the R last ones alone, in a key that all heads
    share: so c need not be rotated, and W_k can be merged with W_q when c is read from a cache. A position's bias is
    added as in any attention. norm is an RMSNorm with a gain. Maps from x and y and the last one have the model's
    biases, those from compressed vectors have none. The paper's head of 128 + 64 dimensions is `head_dim` 192 with
    `rotary_dim` 64 and `value_dim` 128.

    Args:
        kv_rank: width of c.
        query_rank: width of the compressed x that queries are made from; None to make them from x.
        rotary_dim: R.
        value_dim: width of a head's values; None for E.
        norm_eps: ε of the norms of compressed vectors, in their squared units; None for no norms.

    Raises:
        ValueError: if R is not even or leaves nothing of E, or a width is below 1.
    """

    uses = ("score", "normaliser", "pattern", "kernel")
    caches = True
    places: ClassVar[Mapping[str, str]] = {
        **SCORED,
        "hook_latent": "B K L",
        "hook_k": "B K H E−R",
        "hook_v": "B K H W",
        "hook_rot_k": "B K H E",
        "hook_z": "B Q H W",
    }

    @classmethod
    def position_dims(cls, dims: Dims, **settings: Any) -> Dims:
        rotary_dim = settings["rotary_dim"]
        if not isinstance(rotary_dim, int) or rotary_dim % 2 or not 0 < rotary_dim < dims.head_dim:
            raise ValueError(
                f"`rotary_dim` of mla is the part of a head that is rotated in pairs: it must be even, above 0 and "
                f"below `head_dim` = {dims.head_dim}, but it is {rotary_dim!r}; set model.attention.rotary_dim or "
                "head_dim."
            )
        return replace(dims, head_dim=rotary_dim)

    def __init__(
        self,
        dims: Dims,
        *,
        score: Score,
        normaliser: Normaliser,
        pattern: Pattern,
        kernel: Kernel,
        kv_rank: Count,
        query_rank: Count | None,
        rotary_dim: Count,
        value_dim: Count | None,
        norm_eps: Positive | None,
    ) -> None:
        super().__init__()
        self.rotary_dim = self.position_dims(dims, rotary_dim=rotary_dim).head_dim
        value_dim = dims.head_dim if value_dim is None else value_dim
        heads, width, bias = dims.num_heads, dims.d_model, dims.bias
        self.head_dim, self.dropout_p, self.norm_eps = dims.head_dim, dims.dropout, norm_eps
        self.cache_width = kv_rank + rotary_dim
        narrow = query_rank is not None
        self.query_latent = Linear(width, query_rank, Role.LATENT, bias=bias) if query_rank is not None else None
        self.query = Linear(query_rank or width, heads * dims.head_dim, Role.QUERY, bias=bias and not narrow)
        self.latent = Linear(width, kv_rank, Role.LATENT, bias=bias)
        self.rotary_key = Linear(width, rotary_dim, Role.KEY, bias=bias)
        self.key = Linear(kv_rank, heads * (dims.head_dim - rotary_dim), Role.KEY, bias=False)
        self.value = Linear(kv_rank, heads * value_dim, Role.VALUE, bias=False)
        self.value_dim = value_dim
        self.out = Linear(heads * value_dim, width, Role.ATTENTION_OUT, bias=bias)
        self.gain = gain(kv_rank, start=1.0) if norm_eps is not None else None
        self.query_gain = gain(query_rank, start=1.0) if query_rank is not None and norm_eps is not None else None
        self.score, self.normaliser, self.kernel, self.pattern = score, normaliser, kernel, pattern
        self.isotropic = score.isotropic
        self.plan, self.dropout = AttentionPlan(score, normaliser, pattern), nn.Dropout(dims.dropout)

    def forward(self, x: Tensor, context: Context, position: Position, memory: Tensor | None = None) -> Tensor:
        q, k, v, seen = self._project(x, context, position, memory)
        dropout = self.dropout_p if self.training else 0.0
        mixed = attend(self, self.kernel, (q, k, v), self.plan, position, seen, dropout)
        return self.dropout(project_heads(self, self.out, mixed.transpose(1, 2).flatten(2), q.shape[1]))

    def refuses(self, position: Position) -> str | None:
        if position.has_scores:
            return (
                f"mla shows a position encoding only the {self.rotary_dim} dimensions of a head that rotate, so it "
                f"cannot take the content-dependent scores of {type(position).__name__}; use model/position=rope, "
                "alibi, t5, learned or none, or model/attention=mha"
            )
        refusal = self.kernel.refuses(self.plan, position)
        return None if refusal is None else f"{refusal}; use model/kernel=auto or reference"

    def _project(
        self, x: Tensor, context: Context, position: Position, memory: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor, Context]:
        """q [B, H, Q, E], k [B, H, K, E] and v [B, H, K, value_dim], and the context of q and k."""
        read = x if memory is None else memory
        latent, key = self._norm(self.latent(read), self.gain), self.rotary_key(read)
        narrow = x if self.query_latent is None else self._norm(self.query_latent(x), self.query_gain)
        whole = tap_heads(self, "hook_q", split_heads(self.query(narrow), self.head_dim))
        still, rotary = whole.tensor_split([-self.rotary_dim], dim=-1)
        rotary, shared = position.rotate(rotary, key[:, None], context.among_queries if memory is None else context)
        latent, key, context = with_cached(self, latent, shared[:, 0], context, self.pattern, position, memory)
        latent = self.tap("hook_latent", latent)
        own = tap_heads(self, "hook_k", split_heads(self.key(latent), self.head_dim - self.rotary_dim))
        shared = key[:, None].expand(-1, own.shape[1], -1, -1)
        q, k = torch.cat([still, rotary], dim=-1), torch.cat([own, shared], dim=-1)
        q, k = tap_heads(self, "hook_rot_q", q), tap_heads(self, "hook_rot_k", k)
        return q, k, tap_heads(self, "hook_v", split_heads(self.value(latent), self.value_dim)), context

    def _norm(self, latent: Tensor, weight: Tensor | None) -> Tensor:
        return latent if self.norm_eps is None else rms_norm(latent, weight, self.norm_eps)
