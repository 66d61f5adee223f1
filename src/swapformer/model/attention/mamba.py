"""Mamba-2: a recurrent state that decays by one number for each head."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

from torch import Tensor, nn
from torch.nn import functional

from swapformer.model.attention.base import Attention
from swapformer.model.attention.common import project_heads, require_causal, split_heads, tap_heads
from swapformer.model.attention.recurrence import Decay, StateUpdates, run_recurrence
from swapformer.model.attention.recurrent_state import RecurrentInputs, RecurrentState, continue_from_cache
from swapformer.model.context import Context
from swapformer.model.dims import Dims
from swapformer.model.layers import Linear, Role, gain
from swapformer.model.ops import convolution_filters, widen
from swapformer.model.pattern import Pattern
from swapformer.model.position import Position
from swapformer.model.qk_norm import rms_norm
from swapformer.ranges import Count, Positive


class Mamba2(Attention):
    """S_t = α_t S_{t−1} + k_t (Δ_t v_t)ᵀ, out_t = W_o norm((S_tᵀ q_t + d ⊙ v_t) ⊙ silu(W_z x_t)).

    State-space duality: Dao & Gu 2024 (Mamba-2, arXiv:2405.21060), who write C, B and x for q, k and v. These are
    silu(convolution(W x)); q and k have N dimensions and are shared by the heads of a group, v has V = expand · E for
    each head; α and Δ as in `Decay`, d one number for each head; norm is an RMSNorm over the values of a group. The
    convolution has no bias of its own and starts as the identity. Causal by construction, O(T): chunks of pairs, and
    from chunk to chunk S [N, V] alone. The paper has no position encoding; one that rotates acts on q and k, so that
    the state rotates as it decays. The state starts again where a document, which must be in one piece, begins; padding
    neither decays nor writes. W_q, W_k [G·N, D], W_v, W_z [H·V, D], W_o [D, H·V].

    Args:
        state_dim: N.
        num_groups: G, heads that have q and k of their own.
        expand: V/E.
        convolution: width of the convolution over positions, one filter for each channel of q, k and v.
        rate_min, rate_max, step_min, step_max: how fast heads forget at the start, as in `Decay`.
        norm_eps: ε, in squared units of the values.

    Raises:
        ValueError: if the pattern is not plainly causal, G does not divide H, or another number is below 1.
    """

    uses = ("pattern",)
    scoreless = "mamba2"
    crosses = False
    sees_order = True
    caches = True
    places: ClassVar[Mapping[str, str]] = {
        "hook_q": "B T G N",
        "hook_k": "B T G N",
        "hook_v": "B T H W",
        "hook_z": "B T H W",
        "hook_result": "B T H D",
    }

    @classmethod
    def position_dims(cls, dims: Dims, **settings: Any) -> Dims:
        return replace(dims, head_dim=settings["state_dim"])

    def __init__(
        self,
        dims: Dims,
        *,
        pattern: Pattern,
        state_dim: Count,
        num_groups: Count,
        expand: Count,
        convolution: Count,
        rate_min: Positive,
        rate_max: Positive,
        step_min: Positive,
        step_max: Positive,
        norm_eps: Positive,
    ) -> None:
        super().__init__()
        require_causal(pattern, "mamba2")
        if dims.num_heads % num_groups:
            raise ValueError(
                f"`num_groups` of mamba2 must divide `num_heads`, but {num_groups} does not divide {dims.num_heads}."
            )
        heads, width, bias = dims.num_heads, dims.d_model, dims.bias
        self.state_dim, self.num_groups, self.repeats = state_dim, num_groups, heads // num_groups
        self.value_width = expand * dims.head_dim
        keys, values = num_groups * state_dim, heads * self.value_width
        self.query = Linear(width, keys, Role.QUERY, bias=bias)
        self.key = Linear(width, keys, Role.KEY, bias=bias)
        self.value = Linear(width, values, Role.VALUE, bias=bias)
        self.gate = Linear(width, values, Role.GATE, bias=False)
        self.decay = Decay(dims, rate_min=rate_min, rate_max=rate_max, step_min=step_min, step_max=step_max)
        (self.taps,) = convolution_filters(convolution, 2 * keys + values)
        self.skip, self.gain, self.norm_eps = gain(heads, start=1.0), gain(values, start=1.0), norm_eps
        self.out = Linear(values, width, Role.ATTENTION_OUT, bias=bias)
        self.dropout = nn.Dropout(dims.dropout)
        self.state_width = heads * state_dim * self.value_width + (convolution - 1) * (2 * keys + values)

    def forward(self, x: Tensor, context: Context, position: Position, memory: Tensor | None = None) -> Tensor:
        assert memory is None, "mamba2 cannot read a memory"
        return self.dropout(continue_from_cache(self, self.advance, x, context, position))

    def advance(
        self, x: Tensor, context: Context, position: Position, before: RecurrentState | None = None
    ) -> tuple[Tensor, RecurrentState]:
        """The output [B, T, D] for new tokens x and the state after them; `before` is the state before them."""
        tokens = context.query
        new = RecurrentInputs.of(x, (self.query, self.key, self.value), self.taps, tokens, before)
        q, k = split_heads(new.q, self.state_dim), split_heads(new.k, self.state_dim)
        q, k = position.rotate(tap_heads(self, "hook_q", q), tap_heads(self, "hook_k", k), context)
        q, k = (widen(y).repeat_interleave(self.repeats, dim=1) for y in (q, k))
        v = tap_heads(self, "hook_v", split_heads(new.v, self.value_width))
        log_decay, step = self.decay(x, tokens.padding)
        updates = StateUpdates(q, k, widen(v) * step[..., None], log_decay, fresh=new.fresh)
        mixed, state = run_recurrence(updates, new.state)
        heads = (mixed.to(x.dtype) + self.skip[:, None, None] * v).transpose(1, 2).flatten(2)
        gated = heads * functional.silu(self.gate(x))
        by_group = gated.view(*gated.shape[:-1], self.num_groups, -1)
        normed = rms_norm(by_group, None, self.norm_eps).flatten(-2) * self.gain
        return project_heads(self, self.out, normed, v.shape[1]), new.after(state)
