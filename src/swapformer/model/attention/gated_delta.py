"""Gated DeltaNet: a recurrent state that forgets by a gate and corrects what it holds for a key."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

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


class GatedDeltaNet(Attention):
    """S_t = α_t S_{t−1} + β_t k_t (v_t − α_t S_{t−1}ᵀ k_t)ᵀ, out_t = W_o (norm(S_tᵀ q_t / √E) ⊙ silu(W_z x_t)).

    q, k and v are silu(convolution(W x)), q and k then divided by their length √(Σ² + ε); β = σ(W_β x), and α as in
    `Decay`, one of each for each head. S is [E, V], V = expand · E; norm is an RMSNorm over V, one gain for all heads.
    Yang et al. 2024 (Gated DeltaNet, arXiv:2412.06464), the rule itself Schlag et al. 2021 (arXiv:2102.11174). Causal
    by construction, O(T): chunks of pairs, and from chunk to chunk only S. The paper has no position encoding; one
    that rotates acts on q and k. The state starts again where a document, which must be in one piece, begins; padding
    neither decays nor writes. The convolution starts as the identity. W_q, W_k [H·E, D], W_v, W_z [H·V, D], W_o
    [D, H·V].

    Args:
        expand: V/E.
        convolution: width of the convolution over positions, one filter for each channel of q, k and v.
        rate_min, rate_max, step_min, step_max: how fast heads forget at the start, as in `Decay`.
        norm_eps: ε.

    Raises:
        ValueError: if the pattern is not plainly causal, or `expand` or `convolution` is below 1.
    """

    uses = ("pattern",)
    scoreless = "gated delta"
    crosses = False
    sees_order = True
    caches = True
    places: ClassVar[Mapping[str, str]] = {
        "hook_q": "B T H E",
        "hook_k": "B T H E",
        "hook_v": "B T H W",
        "hook_z": "B T H W",
        "hook_result": "B T H D",
    }

    def __init__(
        self,
        dims: Dims,
        *,
        pattern: Pattern,
        expand: Count,
        convolution: Count,
        rate_min: Positive,
        rate_max: Positive,
        step_min: Positive,
        step_max: Positive,
        norm_eps: Positive,
    ) -> None:
        super().__init__()
        require_causal(pattern, "gated delta attention")
        heads, width, bias = dims.num_heads, dims.d_model, dims.bias
        self.key_width, self.value_width = dims.head_dim, expand * dims.head_dim
        keys, values = heads * self.key_width, heads * self.value_width
        self.query = Linear(width, keys, Role.QUERY, bias=bias)
        self.key = Linear(width, keys, Role.KEY, bias=bias)
        self.value = Linear(width, values, Role.VALUE, bias=bias)
        self.gate = Linear(width, values, Role.GATE, bias=False)
        self.strength = Linear(width, heads, Role.GATE, bias=False)
        self.decay = Decay(dims, rate_min=rate_min, rate_max=rate_max, step_min=step_min, step_max=step_max)
        (self.taps,) = convolution_filters(convolution, 2 * keys + values)
        self.gain, self.norm_eps = gain(self.value_width, start=1.0), norm_eps
        self.out = Linear(values, width, Role.ATTENTION_OUT, bias=bias)
        self.dropout = nn.Dropout(dims.dropout)
        self.state_width = heads * self.key_width * self.value_width + (convolution - 1) * (2 * keys + values)

    def forward(self, x: Tensor, context: Context, position: Position, memory: Tensor | None = None) -> Tensor:
        assert memory is None, "gated delta attention cannot read a memory"
        return self.dropout(continue_from_cache(self, self.advance, x, context, position))

    def advance(
        self, x: Tensor, context: Context, position: Position, before: RecurrentState | None = None
    ) -> tuple[Tensor, RecurrentState]:
        """The output [B, T, D] for new tokens x and the state after them; `before` is the state before them."""
        tokens = context.query
        new = RecurrentInputs.of(x, (self.query, self.key, self.value), self.taps, tokens, before)
        q, k = (split_heads(y, self.key_width) for y in (new.q, new.k))
        # y / √(Σ y² + ε), which is smooth at zero.
        q, k = (y * (widen(y).square().sum(-1, keepdim=True) + self.norm_eps).rsqrt().to(y.dtype) for y in (q, k))
        q, k = position.rotate(tap_heads(self, "hook_q", q), tap_heads(self, "hook_k", k), context)
        log_decay, _ = self.decay(x, tokens.padding)
        strength = widen(self.strength(x)).sigmoid().mT
        if tokens.padding is not None:
            strength = strength.masked_fill(tokens.padding[:, None], 0.0)
        v = widen(tap_heads(self, "hook_v", split_heads(new.v, self.value_width)))
        updates = StateUpdates(widen(q) * self.key_width**-0.5, widen(k), v, log_decay, strength, new.fresh)
        mixed, state = run_recurrence(updates, new.state)
        normed = rms_norm(mixed.to(x.dtype), self.gain, self.norm_eps).transpose(1, 2).flatten(2)
        gated = normed * functional.silu(self.gate(x))
        return project_heads(self, self.out, gated, v.shape[1]), new.after(state)
