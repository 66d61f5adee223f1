"""Attention with several heads, whose keys and values may be shared, and with extensions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import torch
from torch import Tensor, nn

from swapformer.model.attention.base import Attention
from swapformer.model.attention.common import (
    SCORED,
    attend,
    project_heads,
    projections,
    split_heads,
    tap_heads,
    with_cached,
)
from swapformer.model.context import Context
from swapformer.model.dims import Dims
from swapformer.model.extension import Extension
from swapformer.model.kernel import AttentionPlan, Kernel, Reference
from swapformer.model.normaliser import Normaliser
from swapformer.model.ops import lowered
from swapformer.model.pattern import Pattern
from swapformer.model.position import Position
from swapformer.model.qk_norm import QKNorm
from swapformer.model.score import Score
from swapformer.ranges import Count


class MultiHead(Attention):
    """out = concat_h(normaliser(mask(scale · (q_h·k_g + scores) + bias)) · v_g) W_o, where g is the group of head h.

    H query heads share G key and value heads, H/G neighbouring query heads each: G = H is multi-head attention (Vaswani
    et al. 2017, arXiv:1706.03762), 1 < G < H grouped-query (Ainslie et al. 2023, arXiv:2305.13245), G = 1 multi-query
    (Shazeer 2019, arXiv:1911.02150). W_q is [H·E, D], W_k and W_v [G·E, D], W_o [D, H·E]. Dropout falls on the weights.
    What extensions change on the way from the projections to W_o is said in `swapformer.model.extension.Extension`.

    Args:
        num_kv_heads: G; None for one for each query head.

    Raises:
        ValueError: if G does not divide H, or two extensions bring a module of one name.
    """

    uses = ("score", "normaliser", "pattern", "kernel", "qk_norm", "extension")
    places: ClassVar[Mapping[str, str]] = SCORED
    auxiliary_loss: Tensor | None = None

    def __init__(
        self,
        dims: Dims,
        *,
        score: Score,
        normaliser: Normaliser,
        pattern: Pattern,
        kernel: Kernel,
        qk_norm: QKNorm,
        extension: Mapping[str, Extension],
        num_kv_heads: Count | None = None,
    ) -> None:
        super().__init__()
        groups = dims.num_heads if num_kv_heads is None else num_kv_heads
        if not isinstance(groups, int) or groups < 1 or dims.num_heads % groups:
            raise ValueError(
                f"`num_kv_heads` must divide `num_heads`, but {groups} does not divide {dims.num_heads}; "
                f"try one of {[g for g in range(1, dims.num_heads + 1) if dims.num_heads % g == 0]}."
            )
        width, shared = dims.num_heads * dims.head_dim, groups * dims.head_dim
        self.cache_width = 2 * shared
        self.head_dim, self.dropout_p = dims.head_dim, dims.dropout
        self.query, self.key, self.value, self.out = projections(dims, shared)
        self.extensions = list(extension.values())
        for name, part in extension.items():
            for key, module in part.modules(width, shared, shared).items():
                if hasattr(self, key):
                    raise ValueError(
                        f"the extension {name} brings a module `{key}`, but the attention has one of this name already."
                    )
                self.add_module(key, module)
        self.qk_norm, self.score, self.normaliser, self.kernel = qk_norm.sized(groups), score, normaliser, kernel
        self.pattern, self.plan = pattern, AttentionPlan(score, normaliser, pattern)
        self.state_width = sum(part.state_width for part in self.extensions) or None
        self.isotropic = score.isotropic and all(part.isotropic for part in self.extensions)
        self.sees_order = any(part.sees_order for part in self.extensions)
        self.anchored = any(part.anchored for part in self.extensions)
        self.caches = all(part.caches for part in self.extensions)
        self.crosses = all(part.crosses for part in self.extensions)
        self.has_auxiliary_loss = any(part.has_auxiliary_loss for part in self.extensions)
        if any(part.shares_values for part in self.extensions):
            self.shares_values = (groups, dims.head_dim)
        self.dropout = nn.Dropout(dims.dropout)

    def forward(self, x: Tensor, context: Context, position: Position, memory: Tensor | None = None) -> Tensor:
        q, k, v, seen = self._project(x, context, position, memory)
        dropout = self.dropout_p if self.training else 0.0
        heads = attend(self, self.kernel, (q, k, v), self.plan, position, seen, dropout)
        for part in self.extensions:
            heads = part.heads(heads)
        if self.training and self.extensions:
            self.auxiliary_loss = self._loss(q, k, heads, position, seen, crosses=memory is not None)
        mixed = heads.transpose(1, 2).flatten(2)
        for part in self.extensions:
            mixed = part.output(mixed, x)
        return self.dropout(project_heads(self, self.out, mixed, q.shape[1]))

    def refuses(self, position: Position) -> str | None:
        refusal = self.kernel.refuses(self.plan, position)
        return None if refusal is None else f"{refusal}; use model/kernel=auto or reference"

    def _project(
        self, x: Tensor, context: Context, position: Position, memory: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor, Context]:
        """q [B, H, Q, E] and k, v [B, G, K, E], normed and rotated.

        The context is that of q and k: of the keys in a cache, those out of the pattern's reach are left out.
        """
        x = lowered(x)
        read = x if memory is None else lowered(memory)
        projected = self.query(x), self.key(read), self.value(read)
        for part in self.extensions:
            projected = part.project(projected, context, crosses=memory is not None)
        q, k, v = self.qk_norm(*(split_heads(y, self.head_dim) for y in projected))
        for part in self.extensions:
            v = part.values(v, context)
        q, k, v = tap_heads(self, "hook_q", q), tap_heads(self, "hook_k", k), tap_heads(self, "hook_v", v)
        q, k = position.rotate(q, k, context.among_queries if memory is None else context)
        k, v, context = with_cached(self, k, v, context, self.pattern, position, memory)
        return tap_heads(self, "hook_rot_q", q), tap_heads(self, "hook_rot_k", k), v, context

    def _loss(
        self, q: Tensor, k: Tensor, heads: Tensor, position: Position, context: Context, *, crosses: bool
    ) -> Tensor | None:
        """The sum of the extensions' losses; None if none has one here."""

        def weights() -> Tensor:
            return Reference.weights(q, k, self.plan, position, context)

        losses = [part.loss(heads, weights, context, crosses=crosses) for part in self.extensions]
        stated = [loss for loss in losses if loss is not None]
        return torch.stack(stated).sum() if stated else None
