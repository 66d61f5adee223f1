"""Linformer: attention to a fixed number of learned mixtures of all positions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from swapformer.model.attention.base import Attention
from swapformer.model.attention.common import (
    IMPLIED,
    Hidden,
    for_each_document,
    masked,
    mix_values,
    project_heads,
    projections,
    require_full,
    split_heads,
    tap_heads,
)
from swapformer.model.context import Context
from swapformer.model.dims import Dims
from swapformer.model.layers import Role, StackedLinear
from swapformer.model.pattern import Pattern
from swapformer.model.position import Position
from swapformer.model.tokens import Tokens
from swapformer.ranges import Count


class Linformer(Attention):
    """out_h = softmax(q_h (A_h k_h)ᵀ / √E) (C_h v_h): attention to M landmarks, mixtures of all positions.

    Wang et al. 2020 (arXiv:2006.04768, section 4), whose E and F are A and C here, [M, max_len]: column p belongs to
    position p, so a shorter row uses the first columns, and time and memory are O(T·M). Keys and values of padding, and
    of other documents, are zero. q and k are rotated before keys are mixed. Dropout falls on the weights of the
    landmarks. W_q, W_k, W_v [H·E, D], W_o [D, H·E].

    Args:
        landmarks: M.
        sharing: none (A and C for each head), heads (one A and one C) or key_value (one A for keys and values of all
            heads); the paper's layerwise sharing is not offered.

    Raises:
        ValueError: if M is below 1, `sharing` another word, the pattern not full, or a position beyond `max_len`.
    """

    uses = ("pattern",)
    scoreless = "linformer"
    sees_order = True
    anchored = True
    isotropic = False
    causal_safe = False
    crosses = True
    signed = True
    places: ClassVar[Mapping[str, str]] = IMPLIED
    limit: int

    def __init__(
        self, dims: Dims, *, pattern: Pattern, landmarks: Count, sharing: Literal["none", "heads", "key_value"]
    ) -> None:
        super().__init__()
        require_full(pattern, "linformer")
        self.pattern = pattern
        maps = dims.num_heads if sharing == "none" else 1
        self.limit, self.head_dim, self.dropout_p = dims.max_len, dims.head_dim, dims.dropout
        self.query, self.key, self.value, self.out = projections(dims)
        self.of_keys = StackedLinear(maps, dims.max_len, landmarks, Role.LANDMARK, bias=False)
        separate = sharing != "key_value"
        self.of_values = StackedLinear(maps, dims.max_len, landmarks, Role.LANDMARK, bias=False) if separate else None
        self.dropout = nn.Dropout(dims.dropout)

    def forward(self, x: Tensor, context: Context, position: Position, memory: Tensor | None = None) -> Tensor:
        q, k, v = self._project(x, context, position, memory)
        keys, values = self._columns(context.key)
        dropout = self.dropout_p if self.training else 0.0

        def mix(_: Hidden, hidden: Hidden) -> Tensor:
            landmarks = (_mixtures(keys, masked(k, hidden)), _mixtures(values, masked(v, hidden)))
            return functional.scaled_dot_product_attention(q, *landmarks, dropout_p=dropout)

        def weights(_: Hidden, hidden: Hidden) -> Tensor:
            logits = q @ _mixtures(keys, masked(k, hidden)).mT * self.head_dim**-0.5
            implied = logits.softmax(-1) @ values
            return implied if hidden is None else implied.masked_fill(hidden[:, None, None, :], 0.0)

        mixed = mix_values(
            self, v, lambda: for_each_document(mix, context), lambda: for_each_document(weights, context)
        )
        return self.dropout(project_heads(self, self.out, mixed.transpose(1, 2).flatten(2), v.shape[1]))

    def _project(
        self, x: Tensor, context: Context, position: Position, memory: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """q [B, H, Q, E] and k, v [B, H, K, E], rotated."""
        source = x if memory is None else memory
        q, k, v = (split_heads(y, self.head_dim) for y in (self.query(x), self.key(source), self.value(source)))
        q, k, v = tap_heads(self, "hook_q", q), tap_heads(self, "hook_k", k), tap_heads(self, "hook_v", v)
        return *position.rotate(q, k, context), v

    def _columns(self, tokens: Tokens) -> tuple[Tensor, Tensor]:
        """A and C at the positions of the keys, each [B|1, H|1, M, K]."""
        if tokens.extent > self.limit:
            raise ValueError(
                f"linformer attention mixes {self.limit} positions (model.max_len), but there are {tokens.extent}; "
                "raise model.max_len, shorten the sequences, or use model/attention=nystrom or mha."
            )
        keys, values = self.of_keys.weight, (self.of_values or self.of_keys).weight
        return _at(keys, tokens.position), _at(values, tokens.position)


def _at(table_SMP: Tensor, position_BK: Tensor) -> Tensor:
    """[S, M, P] and positions [B|1, K] → [B|1, S, M, K]."""
    return table_SMP[:, :, position_BK].movedim(2, 0)


def _mixtures(columns: Tensor, x: Tensor) -> Tensor:
    """Σ_j columns_mj x_j: [B|1, H|1, M, K] and [B, H, K, E] → [B, H, M, E]."""
    return torch.einsum("bhmk,bhke->bhme", columns, x)
