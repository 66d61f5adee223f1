"""Reformer: attention to the positions that fall into the same bucket of a random hash."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from swapformer.model.attention.base import Attention
from swapformer.model.attention.buckets import ChunkIndex, Chunks, hashes
from swapformer.model.attention.common import IMPLIED, mix_values, project_heads, require_plain, split_heads, tap_heads
from swapformer.model.context import Context
from swapformer.model.dims import Dims
from swapformer.model.layers import Linear, Role
from swapformer.model.ops import widen
from swapformer.model.pattern import Pattern
from swapformer.model.position import Position
from swapformer.random import stream
from swapformer.ranges import Count, Natural

_SELF = -1e5
"""The logit of a position with itself: its weight is zero beside any other, and one where there is no other."""


class Reformer(Attention):
    """out_i = Σ_j softmax_j(q_i · k_j / √E) v_j over the positions j in i's bucket in some round, k = q / RMS(q).

    Kitaev et al. 2020 (arXiv:2001.04451): queries are keys, and a position sees itself only where it sees no other.
    In each of R rounds the directions of queries fall into N buckets, argmax(qW, −qW) with W [E, N/2] standard normal,
    drawn once for each layer and head from a separate stream. A bucket's positions, in their order, are cut into
    chunks of C, and a position sees those of its chunk and of the chunk before. Over the rounds a pair counts once, as
    in the paper (section 3). Time and memory O(R·T·C) beside the sorting.

    The paper cuts the whole sorted row into chunks. There, where the chunk of an earlier position begins depends on how
    many later ones fall into other buckets, so that the future leaks; here every bucket is cut by itself.

    Buckets are found before a rotation turns q and k. Dropout falls on the weights. W_q, W_v [H·E, D], W_o [D, H·E].

    Args:
        buckets: N.
        rounds: R.
        chunk: C, in positions.
        seed: names the directions.

    Raises:
        ValueError: if N is not an even number of at least 2, R or C below 1, or the pattern neither full nor plainly
            causal.
    """

    uses = ("pattern",)
    scoreless = "reformer"
    sees_order = True
    crosses = False
    caches = True
    places: ClassVar[Mapping[str, str]] = IMPLIED
    rotations: Tensor

    def __init__(
        self, dims: Dims, *, pattern: Pattern, buckets: Count, rounds: Count, chunk: Count, seed: Natural
    ) -> None:
        super().__init__()
        require_plain(pattern, "reformer")
        if buckets % 2:
            raise ValueError(f"`buckets` of reformer attention must be even, but it is {buckets}.")
        width = dims.num_heads * dims.head_dim
        self.cache_width = 2 * width + dims.num_heads * rounds
        self.head_dim, self.rounds, self.chunk, self.dropout_p = dims.head_dim, rounds, chunk, dims.dropout
        self.pattern = pattern
        self.query = Linear(dims.d_model, width, Role.QUERY, bias=dims.bias)
        self.value = Linear(dims.d_model, width, Role.VALUE, bias=dims.bias)
        self.out = Linear(width, dims.d_model, Role.ATTENTION_OUT, bias=dims.bias)
        self.dropout = nn.Dropout(dims.dropout)
        shape, generator = (dims.num_heads, rounds, dims.head_dim, buckets // 2), stream("reformer", seed, dims.layer)
        self.register_buffer("rotations", torch.randn(shape, generator=generator, device="cpu"), persistent=False)

    def forward(self, x: Tensor, context: Context, position: Position, memory: Tensor | None = None) -> Tensor:
        q, k, v, index = self._project(x, context, position)

        def mix() -> Tensor:
            if context.query is context.key:
                return self._by_rounds(q, k, v, index, context.key.order)
            return self._by_pairs(q, k, index, context) @ widen(v)

        mixed = mix_values(self, v, mix, lambda: self._by_pairs(q, k, index, context))
        heads = mixed.to(x.dtype).transpose(1, 2).flatten(2)
        return self.dropout(project_heads(self, self.out, heads, q.shape[1]))

    def _project(self, x: Tensor, context: Context, position: Position) -> tuple[Tensor, Tensor, Tensor, ChunkIndex]:
        """q [B, H, Q, E], k and v [B, H, K, E] behind those in the cache, rotated, and the chunk of each position."""
        q, v = (split_heads(y, self.head_dim) for y in (self.query(x), self.value(x)))
        q, v = tap_heads(self, "hook_q", q), tap_heads(self, "hook_v", v)
        buckets, shared = hashes(widen(q.detach()), self.rotations), q
        if context.cache is not None:
            shared, v, cached = context.cache.append(self, q, v, buckets.mT.int())
            buckets = cached.mT.long()
        k = functional.rms_norm(shared, (self.head_dim,), eps=1e-6) * self.head_dim**-0.5
        k = tap_heads(self, "hook_k", k)
        return *position.rotate(q, k, context), v, ChunkIndex.of(buckets, context.key, self.chunk)

    def _by_pairs(self, q: Tensor, k: Tensor, index: ChunkIndex, context: Context) -> Tensor:
        """The weights of the last Q positions for all K, every pair formed: O(Q·K)."""
        own, other = context.query.order[:, None, :, None], context.key.order[:, None, None, :]
        seen = index.visible(q.shape[2])
        itself = (own == other) & seen  # padding before the first token has its order, and is never seen
        return _logits(q, k, seen & (other <= own) if self.pattern.causal else seen, itself).softmax(-1)

    def _by_rounds(self, q: Tensor, k: Tensor, v: Tensor, index: ChunkIndex, order: Tensor) -> Tensor:
        """The heads' outputs over all rounds, [B, H, T, E]."""
        order, ahead = order[:, None].expand(q.shape[:3]), not self.pattern.causal
        rounds = (Chunks(index, number, self.chunk, ahead=ahead) for number in range(self.rounds))
        found = [self._attend(q, k, v, order, chunks) for chunks in rounds]
        outs, sizes = (torch.stack(parts) for parts in zip(*found, strict=True))
        return (sizes.softmax(0)[..., None] * outs).sum(0)

    def _attend(self, q: Tensor, k: Tensor, v: Tensor, order: Tensor, chunks: Chunks) -> tuple[Tensor, Tensor]:
        """One round: the heads' outputs [B, H, T, E], and the logarithm of what the weights sum to [B, H, T]."""
        seen = chunks.seen()
        if self.pattern.causal:
            query, key = chunks.pairs(order, 0)
            seen = seen & (key <= query)
        logits = _logits(chunks.own(q), chunks.around(k), seen, chunks.itself())
        sizes = logits.logsumexp(-1, keepdim=True)
        weights = functional.dropout((logits - sizes).exp(), self.dropout_p, training=self.training)
        mixed = weights @ chunks.around(v).to(weights.dtype)
        return chunks.restore(mixed), chunks.restore(sizes[..., 0])


def _logits(q: Tensor, k: Tensor, seen: Tensor, itself: Tensor) -> Tensor:
    """q_i·k_j where i sees j, −∞ where it does not, and a very low number for a position with itself."""
    return widen(q @ k.mT).masked_fill(~seen, float("-inf")).masked_fill(itself, _SELF)
