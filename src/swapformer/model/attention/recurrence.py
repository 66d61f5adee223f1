"""A state that each place decays and writes to: what recurrent mixers share.

The state S [B, H, E, V] is a linear map from keys to values. Place t of a document makes of it

    S_t = α_t S_{t−1} + k_t u_tᵀ,   out_t = S_tᵀ q_t,   u_t = v_t, or u_t = β_t (v_t − (α_t S_{t−1})ᵀ k_t),

where the second u replaces what the state held for k_t (the delta rule) and the first adds to it. The first place of a
document starts from S = 0. `by_place` is the specification, `by_chunk` equals it with products of whole matrices.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

_CHUNK = 64
"""Places that are matched pair by pair before the state is carried on."""


@dataclass(frozen=True)
class Steps:
    """What the places do to the state.

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


def recur(steps: Steps, state: Tensor | None) -> tuple[Tensor, Tensor]:
    """out [B, H, T, V] and the state after the last place, from a state or from nothing.

    Never in less than float32, nor in what autocast would choose: a sum over all places loses much in fewer digits.
    """
    q, v = steps.q, steps.v
    if state is None:
        state = v.new_zeros(*q.shape[:2], q.shape[-1], v.shape[-1])
    with _as_given(q.device.type):
        return by_place(steps, state) if q.shape[-2] == 1 else by_chunk(steps, state)


def _as_given(device: str) -> AbstractContextManager[None]:
    """Within it nothing is cast; a device without autocast, such as meta, never does."""
    known = torch.amp.is_autocast_available(device)
    return torch.autocast(device, enabled=False) if known else nullcontext()


def by_place(steps: Steps, state: Tensor) -> tuple[Tensor, Tensor]:
    """The equation, place by place."""
    decay, outs = steps.log_decay.exp(), []
    if steps.fresh is not None:
        decay = decay.masked_fill(steps.fresh[:, None], 0.0)
    for t in range(steps.q.shape[-2]):
        q, k, v = (x[:, :, t, :, None] for x in (steps.q, steps.k, steps.v))
        state = decay[:, :, t, None, None] * state
        change = v if steps.strength is None else steps.strength[:, :, t, None, None] * (v - state.mT @ k)
        state = state + k @ change.mT
        outs.append((state.mT @ q)[..., 0])
    return torch.stack(outs, dim=2), state


def by_chunk(steps: Steps, state: Tensor) -> tuple[Tensor, Tensor]:
    """The same in O(T): pairs within a chunk, and the state from chunk to chunk.

    With P_ij the decay from j to i, u of a chunk solves u_i + β_i Σ_{j<i} P_ij (k_i·k_j) u_j = β_i (v_i − s_i Sᵀk_i),
    where S is the state before the chunk and s_i its decay up to i (Yang et al. 2024, arXiv:2412.06464, section 3.3).
    """
    length = steps.q.shape[-2]
    size = min(_CHUNK, length)
    q, k, v = (_chunks(x, size) for x in (steps.q, steps.k, steps.v))
    pairs, since_start, until_end = _decays(steps, size)
    reads = None
    if steps.strength is not None:
        strength = _chunks(steps.strength[..., None], size)
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


def _chunks(x: Tensor, size: int) -> Tensor:
    """[B, H, T, M] → [B, H, N, size, M], filled up with zeros, which decay nothing and write nothing."""
    x = functional.pad(x, (0, 0, 0, -x.shape[-2] % size))
    return x.reshape(*x.shape[:2], -1, size, x.shape[-1])


def _decays(steps: Steps, size: int) -> tuple[Tensor, Tensor, Tensor]:
    """Decay between the places of a chunk [B, H, N, C, C], from its start to each [.., C, 1], and from each to its end.

    What another document wrote is gone: documents are told apart by how many have started, so that nothing is ever
    divided by a decay of zero.
    """
    total = _chunks(steps.log_decay[..., None], size).cumsum(dim=-2)
    pairs = (total - total.mT).masked_fill(_later(size, total.device), float("-inf")).exp()
    since_start, until_end = total.exp(), (total[..., -1:, :] - total).exp()
    if steps.fresh is not None:
        started = _chunks(steps.fresh[:, None, :, None].long(), size).cumsum(dim=-2)
        pairs = pairs.masked_fill(started != started.mT, 0.0)
        since_start = since_start.masked_fill(started > 0, 0.0)
        until_end = until_end.masked_fill(started != started[..., -1:, :], 0.0)
    return pairs, since_start, until_end


def _later(size: int, device: torch.device) -> Tensor:
    return torch.ones(size, size, dtype=torch.bool, device=device).triu(1)
