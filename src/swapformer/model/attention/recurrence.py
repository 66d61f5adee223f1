"""The recurrence of Mamba-2 and Gated DeltaNet: a state that every token decays and adds to.

The state S [B, H, E, V] is a linear map from keys to values. Token t of a document makes of it

    S_t = α_t S_{t−1} + k_t u_tᵀ,   out_t = S_tᵀ q_t,   u_t = v_t, or u_t = β_t (v_t − (α_t S_{t−1})ᵀ k_t),

where the second u replaces what the state held for k_t (the delta rule) and the first adds to it. The first token of a
document starts from S = 0. `by_step` is the specification, `by_chunk` equals it with products of whole matrices.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from swapformer.model.dims import Dims
from swapformer.model.layers import Linear, Role, shift
from swapformer.model.ops import chunks, cumulative_sum, widen, without_autocast

_CHUNK = 64
"""Positions of a chunk, within which pairs are formed; the state goes from chunk to chunk."""


@dataclass(frozen=True)
class StateUpdates:
    """The effect of each token on the state, and its reading of the state.

    Attributes:
        q, k: [B, H, T, E].
        v: [B, H, T, V].
        log_decay: log α ≤ 0, [B, H, T].
        strength: β, [B, H, T]; None to add v as it is.
        fresh: True where a document starts, bool [B|1, T]; None where none does.
    """

    q: Tensor
    k: Tensor
    v: Tensor
    log_decay: Tensor
    strength: Tensor | None = None
    fresh: Tensor | None = None


def run_recurrence(updates: StateUpdates, state: Tensor | None) -> tuple[Tensor, Tensor]:
    """out [B, H, T, V] and the state after the last token; `state` is None at the start.

    Never in less than float32, nor in what autocast would choose: a sum over all tokens loses much in fewer digits.
    """
    q, v = updates.q, updates.v
    if state is None:
        state = v.new_zeros(*q.shape[:2], q.shape[-1], v.shape[-1])
    with without_autocast(q.device):
        return by_step(updates, state) if q.shape[-2] == 1 else by_chunk(updates, state)


def by_step(updates: StateUpdates, state: Tensor) -> tuple[Tensor, Tensor]:
    """The equation, token by token."""
    decay, outs = updates.log_decay.exp(), []
    if updates.fresh is not None:
        decay = decay.masked_fill(updates.fresh[:, None], 0.0)
    for t in range(updates.q.shape[-2]):
        q, k, v = (x[:, :, t, :, None] for x in (updates.q, updates.k, updates.v))
        state = decay[:, :, t, None, None] * state
        change = v if updates.strength is None else updates.strength[:, :, t, None, None] * (v - state.mT @ k)
        state = state + k @ change.mT
        outs.append((state.mT @ q)[..., 0])
    return torch.stack(outs, dim=2), state


def by_chunk(updates: StateUpdates, state: Tensor) -> tuple[Tensor, Tensor]:
    """The same in O(T): pairs within a chunk, and the state from chunk to chunk.

    With P_ij the decay from j to i, u of a chunk solves u_i + β_i Σ_{j<i} P_ij (k_i·k_j) u_j = β_i (v_i − s_i Sᵀk_i),
    where S is the state before the chunk and s_i its decay up to i (Yang et al. 2024, arXiv:2412.06464, section 3.3).
    """
    length = updates.q.shape[-2]
    size = min(_CHUNK, length)
    q, k, v = (chunks(x, size) for x in (updates.q, updates.k, updates.v))
    pairs, since_start, until_end = _decays(updates, size)
    reads = None
    if updates.strength is not None:
        strength = chunks(updates.strength[..., None], size)
        system = pairs * ((strength * k) @ k.mT)
        right = strength * torch.cat([v, since_start * k], dim=-1)
        solved = torch.linalg.solve_triangular(system, right, upper=False, unitriangular=True)
        v, reads = solved.split([v.shape[-1], k.shape[-1]], dim=-1)
    inner, q, k = pairs * (q @ k.mT), since_start * q, until_end * k
    outs = []
    for n in range(q.shape[2]):
        change = v[:, :, n] if reads is None else v[:, :, n] - reads[:, :, n] @ state
        outs.append(q[:, :, n] @ state + inner[:, :, n] @ change)
        state = since_start[:, :, n, -1:] * state + k[:, :, n].mT @ change
    return torch.cat(outs, dim=2)[:, :, :length], state


def _decays(updates: StateUpdates, size: int) -> tuple[Tensor, Tensor, Tensor]:
    """Decay between the tokens of a chunk [B, H, N, C, C], from its start to each [.., C, 1], and from each to its end.

    The zeros that fill up a chunk decay nothing and write nothing. Between documents the decay is zero. They are told
    apart by how many have started, so that nothing is ever divided by a decay of zero.
    """
    total = cumulative_sum(chunks(updates.log_decay[..., None], size), dim=-2)
    later = torch.ones(size, size, dtype=torch.bool, device=total.device).triu(1)
    pairs = (total - total.mT).masked_fill(later, float("-inf")).exp()
    since_start, until_end = total.exp(), (total[..., -1:, :] - total).exp()
    if updates.fresh is not None:
        started = chunks(updates.fresh[:, None, :, None].long(), size).cumsum(dim=-2)
        pairs = pairs.masked_fill(started != started.mT, 0.0)
        since_start = since_start.masked_fill(started > 0, 0.0)
        until_end = until_end.masked_fill(started != started[..., -1:, :], 0.0)
    return pairs, since_start, until_end


class Decay(nn.Module):
    """Δ_t = softplus(W x_t + b + δ), log α_t = −exp(a + ρ) Δ_t, one of each for each head (Mamba-2: arXiv:2405.21060).

    exp(a) is spread evenly over the heads and softplus(b) by equal factors, so that heads start with memories of
    different lengths; ρ and δ are learned and start at zero. The paper draws both at random from the same ranges.

    Args:
        rate_min, rate_max: exp(a) of the first and the last head.
        step_min, step_max: Δ of the first and the last head where W x = 0, in positions.

    Raises:
        ValueError: if a range does not rise from above 0.
    """

    rates: Tensor
    steps: Tensor

    def __init__(self, dims: Dims, *, rate_min: float, rate_max: float, step_min: float, step_max: float) -> None:
        super().__init__()
        for name, low, high in (("rate", rate_min, rate_max), ("step", step_min, step_max)):
            if not 0 < low <= high:
                raise ValueError(
                    f"`{name}_min` must lie above 0 and `{name}_max` not below it, but they are {low} and {high}."
                )
        with torch.device("cpu"):  # on the meta device a range imports torch's compiler, which takes a second
            rates = torch.linspace(rate_min, rate_max, dims.num_heads).log()
            steps = torch.linspace(math.log(step_min), math.log(step_max), dims.num_heads).exp()
        self.register_buffer("rates", torch.tensor(rates.tolist()), persistent=False)
        steps = torch.tensor(steps.expm1().log().tolist())  # softplus of it is the step
        self.register_buffer("steps", steps, persistent=False)
        self.map = Linear(dims.d_model, dims.num_heads, Role.GATE, bias=False)
        self.rate, self.step = shift(dims.num_heads), shift(dims.num_heads)

    def forward(self, x: Tensor, padding: Tensor | None) -> tuple[Tensor, Tensor]:
        """log α and Δ, [B, H, T], both zero where padding [B|1, T] is: it forgets nothing and writes nothing."""
        step = functional.softplus(widen(self.map(x)) + widen(self.steps + self.step))
        if padding is not None:
            step = step.masked_fill(padding[..., None], 0.0)
        log_decay = -widen(self.rates + self.rate).exp() * step
        return log_decay.mT, step.mT
