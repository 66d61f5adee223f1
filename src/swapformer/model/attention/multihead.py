"""Softmax-like attention with several heads, whose keys and values may be shared."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn

from swapformer.model.attention.auxiliary_losses import Pulls
from swapformer.model.attention.base import Attention
from swapformer.model.attention.convolution import convolve, filters
from swapformer.model.attention.kv_cache import with_kept
from swapformer.model.context import Context
from swapformer.model.dims import Dims
from swapformer.model.kernel import AttentionPlan, Kernel, Reference
from swapformer.model.layers import Linear, Role
from swapformer.model.normaliser import Normaliser
from swapformer.model.pattern import Pattern
from swapformer.model.position import Position
from swapformer.model.qk_norm import QKNorm
from swapformer.model.score import Score


class MultiHead(Attention):
    """out = concat_h(normaliser(mask(scale · (q_h·k_g + scores) + bias)) · v_g) W_o, where g is the group of head h.

    H query heads share G key and value heads, H/G neighbouring query heads each: G = H is multi-head attention (Vaswani
    et al. 2017, arXiv:1706.03762), 1 < G < H grouped-query (Ainslie et al. 2023, arXiv:2305.13245), G = 1 multi-query
    (Shazeer 2019, arXiv:1911.02150). W_q is [H·E, D], W_k and W_v [G·E, D], W_o [D, H·E]. Dropout falls on the weights.

    Args:
        num_kv_heads: G; None for one for each query head.
        masked_heads: query heads whose output is taken as zero, counted from 0.
        output_gate: whether the heads' output is multiplied by σ(x·W_g), W_g [H·E, D] (Qiu et al. 2025,
            arXiv:2505.06708).
        convolution: width of a causal convolution over places, one filter for each channel of q, k and v, that starts
            as the identity (Primer: So et al. 2021, arXiv:2109.08668, width 3); None for none. It ends where a document
            begins, and padding counts as zero.
        orthogonality: weight of an auxiliary loss, the mean squared cosine between two heads' outputs at a place (the
            contextual part of Lee et al. 2019, arXiv:1910.04500); 0 for none.
        value_residual: share λ of the first layer's values in this layer's, v ← (1 − λ) v + λ v₁ (Zhou et al. 2024,
            arXiv:2410.17897: ½ in their identity form); 0 for none. All layers that have one need values of one shape.
        previous_pull, local_pull, global_pull: weights, for each head from head 0, of an auxiliary loss that guides it:
            the squared distance of its weights from p_i, averaged over queries (in the spirit of Deshpande & Narasimhan
            2020, arXiv:2010.02399). p_i lies on place i − 1, or falls by half with each place of distance, or is even,
            among the places that i may see. In training the weights are formed once more for it. A memory guides
            nothing. To forbid a head all else, use a pattern for each head (model/pattern=guided_heads).

    Raises:
        ValueError: if G does not divide H, a head that is named does not exist, the convolution has no width, λ is not
            in [0, 1), a weight is negative, or there is but one head to be orthogonal.
    """

    uses = ("score", "normaliser", "pattern", "kernel", "qk_norm")
    caches = True
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
        num_kv_heads: int | None = None,
        masked_heads: Sequence[int] = (),
        output_gate: bool = False,
        convolution: int | None = None,
        orthogonality: float = 0.0,
        value_residual: float = 0.0,
        previous_pull: Sequence[float] = (),
        local_pull: Sequence[float] = (),
        global_pull: Sequence[float] = (),
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
        self.head_dim, self.repeats, self.dropout_p = dims.head_dim, dims.num_heads // groups, dims.dropout
        self.query = Linear(dims.d_model, width, Role.QUERY, bias=dims.bias)
        self.key = Linear(dims.d_model, shared, Role.KEY, bias=dims.bias)
        self.value = Linear(dims.d_model, shared, Role.VALUE, bias=dims.bias)
        self.out = Linear(width, dims.d_model, Role.ATTENTION_OUT, bias=dims.bias)
        self.gate = Linear(dims.d_model, width, Role.GATE, bias=False) if output_gate else None
        self.filters = nn.ParameterList() if convolution is None else filters(convolution, width, shared, shared)
        self.isotropic = score.isotropic
        self.sees_order = convolution is not None and convolution > 1
        self.masked_heads = _existing(masked_heads, dims.num_heads)
        self.value_residual = _share(value_residual)
        self.shares_values = (groups, dims.head_dim) if value_residual else None
        self.qk_norm, self.score, self.normaliser, self.kernel = qk_norm.sized(groups), score, normaliser, kernel
        self.pattern = pattern
        self.plan = AttentionPlan(score, normaliser, pattern)
        behaviours = {"previous": previous_pull, "local": local_pull, "global": global_pull}
        self.pulls = Pulls(orthogonality, behaviours, dims.num_heads, self.plan)
        self.has_auxiliary_loss = bool(self.pulls)
        self.dropout = nn.Dropout(dims.dropout)

    def forward(self, x: Tensor, context: Context, position: Position, memory: Tensor | None = None) -> Tensor:
        q, k, v, seen = self._project(x, context, position, memory)
        dropout = self.dropout_p if self.training else 0.0
        mixed = self.kernel(q, k, v, self.plan, position, seen, dropout)
        if self.masked_heads:
            mixed = mixed.index_fill(1, torch.tensor(self.masked_heads, device=mixed.device), 0.0)
        if self.training and self.pulls:
            self.auxiliary_loss = self.pulls.loss(q, k, mixed, position, seen, own=memory is None)
        heads = mixed.transpose(1, 2).flatten(2)
        return self.dropout(self.out(heads if self.gate is None else heads * self.gate(x).sigmoid()))

    def weights(self, x: Tensor, context: Context, position: Position, memory: Tensor | None = None) -> Tensor:
        """The attention weights [B, H, Q, K] of an input, by the reference kernel."""
        q, k, _, seen = self._project(x, context, position, memory)
        return Reference.weights(q, k, self.plan, position, seen)

    def refuses(self, position: Position) -> str | None:
        refusal = self.kernel.refuses(self.plan, position)
        return None if refusal is None else f"{refusal}; use model/kernel=auto or reference"

    def _project(
        self, x: Tensor, context: Context, position: Position, memory: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor, Context]:
        """q [B, H, Q, E] and k, v [B, H, K, E], normed and rotated, keys and values repeated for their group.

        The context is that of q and k: of the keys in a cache, those out of the pattern's reach are left out.
        """
        q, k, v = self.qk_norm(*self._heads(x, context, memory))
        if self.value_residual:
            v = torch.lerp(v, context.once("values of the first layer", lambda: v), self.value_residual)
        k, v, context = with_kept(self, k, v, context, self.pattern, position, memory)
        q, k = position.rotate(q, k, context)
        if self.repeats > 1:
            k, v = k.repeat_interleave(self.repeats, dim=1), v.repeat_interleave(self.repeats, dim=1)
        return q, k, v, context

    def _heads(self, x: Tensor, context: Context, memory: Tensor | None) -> Iterator[Tensor]:
        """q [B, H, Q, E], then k and v [B, G, Q, E] of the places that are read now."""
        read = x if memory is None else memory
        projected = [self.query(x), self.key(read), self.value(read)]
        if self.filters:
            projected = self._convolved(projected, context, memory)
        return (y.unflatten(-1, (-1, self.head_dim)).transpose(1, 2) for y in projected)

    def _convolved(self, projected: Sequence[Tensor], context: Context, memory: Tensor | None) -> list[Tensor]:
        """Queries, keys and values after the convolutions, which see the places kept from before as well."""
        query, key = context.query, context.query if memory is None else context.key
        if context.cache is not None and memory is None:
            width = max(len(taps) for taps in self.filters)
            projected = context.cache.append((self, "projected"), *projected, last=max(width - 1, 1))
            query = key = context.latest(projected[0].shape[-2]).key
        convolved = [convolve(*each) for each in zip(projected, self.filters, (query, key, key), strict=True)]
        return convolved if memory is not None else [y[:, -len(context.query) :] for y in convolved]


def _share(value_residual: float) -> float:
    if not 0 <= value_residual < 1:
        raise ValueError(f"`value_residual` is a share: it must lie in [0, 1), but it is {value_residual}.")
    return value_residual


def _existing(heads: Sequence[int], num_heads: int) -> list[int]:
    if wrong := [head for head in heads if not 0 <= head < num_heads]:
        raise ValueError(f"`masked_heads` must name heads from 0 to {num_heads - 1}, but it names {wrong}.")
    return list(heads)
