"""Operations on tensors that parts of several slots share: precision, chunks, sums, shared heads, convolution."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode, _get_current_function_mode_stack

from swapformer.model.layers import gain
from swapformer.model.tokens import Tokens


def widen(x: Tensor) -> Tensor:
    """x in float32 or wider: long sums and exponentials lose much in fewer digits."""
    return x if x.element_size() >= 4 else x.float()


def chunks(x: Tensor, size: int) -> Tensor:
    """[B, H, T, M] → [B, H, N, size, M], filled up with zeros."""
    x = functional.pad(x, (0, 0, 0, -x.shape[-2] % size))
    return x.reshape(*x.shape[:2], -1, size, x.shape[-1])


class CountedFor(TorchFunctionMode):
    """A mode in which operations on the meta device, where tensors have no data, are those of a kind of device."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


def computed_on(x: Tensor) -> str:
    """The kind of device that computes with x, such as `cpu` and `cuda`; on meta, the one that is counted for.

    Whatever chooses another way of computing on another device asks this, or its operations would be counted wrongly.
    """
    if not x.is_meta:
        return x.device.type
    modes = reversed(_get_current_function_mode_stack())  # type: ignore[no-untyped-call]
    return next((mode.kind for mode in modes if isinstance(mode, CountedFor)), "meta")


def cumulative_sum(x: Tensor, dim: int) -> Tensor:
    """Σ_{j≤i} x_j along an axis: torch's own on a CPU, elsewhere by products with triangles of ones.

    On CUDA torch's own raises for floats where algorithms are deterministic. The products are over runs of 64, and over
    the sums of runs, so that memory stays linear.
    """
    return x.cumsum(dim) if computed_on(x) == "cpu" else sum_by_triangles(x, dim)


def sum_by_triangles(x: Tensor, dim: int, run: int = 64) -> Tensor:
    """`cumulative_sum` by products of triangular matrices [run, run], and of the runs' sums by the same again."""
    y = x.movedim(dim, -1)
    length = y.shape[-1]
    size = min(run, length)
    runs = functional.pad(y, (0, -length % size)).reshape(*y.shape[:-1], -1, size)
    with without_autocast(x.device):
        within = runs @ torch.ones(size, size, dtype=x.dtype, device=x.device).triu()
    if runs.shape[-2] > 1:
        ends = sum_by_triangles(within[..., -1], -1, run)
        within = within + functional.pad(ends[..., :-1], (1, 0))[..., None]
    return within.flatten(-2)[..., :length].movedim(-1, dim)


class Constants:
    """Numbers of a part that never change, copied to each device once: a copy in every step would wait for it."""

    def __init__(self) -> None:
        self._held: dict[tuple[object, ...], Tensor] = {}

    def of(self, values: tuple[float, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
        """The numbers as a tensor [N]."""
        key = (values, dtype, device)
        if key not in self._held:
            with torch.inference_mode(False):
                self._held[key] = torch.tensor(values, dtype=dtype, device=device)
        return self._held[key]


def total(first: Tensor | None, second: Tensor | None) -> Tensor | None:
    """The sum of two terms, each of which may be missing; None if both are."""
    if first is None or second is None:
        return second if first is None else first
    return first + second


def head_products(q_BHQE: Tensor, k_BGKE: Tensor) -> Tensor:
    """q_hi · k_gj for every query head h and its group g of keys, [B, H, Q, K]; G divides H, and no key is copied."""
    groups = k_BGKE.shape[1]
    if groups == q_BHQE.shape[1]:
        return q_BHQE @ k_BGKE.mT
    return (_by_group(q_BHQE, groups) @ k_BGKE.mT).view(*q_BHQE.shape[:3], k_BGKE.shape[2])


def head_sums(weights_BHQK: Tensor, v_BGKE: Tensor) -> Tensor:
    """Σ_j weights_hij · v_gj for every query head h and its group g of values, [B, H, Q, E]; no value is copied."""
    groups = v_BGKE.shape[1]
    if groups == weights_BHQK.shape[1]:
        return weights_BHQK @ v_BGKE
    return (_by_group(weights_BHQK, groups) @ v_BGKE).view(*weights_BHQK.shape[:3], v_BGKE.shape[3])


def _by_group(x_BHQX: Tensor, groups: int) -> Tensor:
    """The rows of all heads of a group one below the other, [B, G, H/G · Q, X]."""
    return x_BHQX.reshape(x_BHQX.shape[0], groups, -1, x_BHQX.shape[3])


CAN_AUTOCAST = frozenset(kind for kind in ("cpu", "cuda", "xpu", "mps") if torch.amp.is_autocast_available(kind))
"""Kinds of devices that autocast knows. Asked once: torch's compiler cannot follow the question."""


def lowered(x: Tensor) -> Tensor:
    """x as autocast gives it to products of matrices: cast once where several products read it."""
    kind = x.device.type
    if x.dtype != torch.float32 or kind not in CAN_AUTOCAST or not torch.is_autocast_enabled(kind):
        return x
    return x.to(torch.get_autocast_dtype(kind))


ALIGNED, MANY = 64, 4096
"""Where there are at least `MANY` symbols, their number is made a multiple of `ALIGNED`."""


def symbol_logits(states: Tensor, weight_VD: Tensor, bias_V: Tensor | None = None) -> Tensor:
    """states · weightᵀ + bias, [..., V].

    A GPU multiplies 16-bit matrices four times as slowly where their rows do not begin at multiples of 16 bytes, as
    with the 50 257 symbols of GPT-2. There the weight gets rows of zeros, whose logits are cut off.
    """
    low, short = lowered(weight_VD), -len(weight_VD) % ALIGNED
    if not short or len(weight_VD) < MANY or not _needs_alignment(low):
        return functional.linear(states, weight_VD, bias_V)
    bias = None if bias_V is None else functional.pad(lowered(bias_V), (0, short))
    return functional.linear(states, functional.pad(low, (0, 0, 0, short)), bias)[..., : len(weight_VD)]


def _needs_alignment(x: Tensor) -> bool:
    return x.is_cuda and x.element_size() == 2


def without_autocast(device: torch.device) -> AbstractContextManager[object]:
    """A context in which no operation is cast; a device without autocast, such as meta, never casts."""
    if device.type not in CAN_AUTOCAST:
        return nullcontext()
    return torch.autocast(device.type, enabled=False)


def convolution_filters(width: int, *channels: int) -> nn.ParameterList:
    """One filter [width, C] for each number of channels C, for `causal_convolution`; zero, so that it is the identity.

    Row s holds what the position s back adds; row 0 is the position itself.
    """
    return nn.ParameterList(gain(width, count, start=0.0) for count in channels)


def causal_convolution(
    y: Tensor, taps: Tensor, tokens: Tokens, before: Tensor | None = None, document: Tensor | None = None
) -> Tensor:
    """y_i + Σ_s taps_s ⊙ y_{i−s}, for y [B, T, C], over the positions i−s ≤ i of the same document.

    Padding counts as zero. Where y continues a sequence, `before` [B, W − 1, C] are its last inputs, as
    `convolution_state` returns them, and `document` [B|1, 1] is the document that they belong to.
    """
    inputs, documents = _with_past(y, len(taps) - 1, tokens, before, document)
    length = y.shape[1]
    y = inputs[:, len(taps) - 1 :]
    out = y + taps[0] * y
    for back in range(1, len(taps)):
        start = len(taps) - 1 - back
        earlier = inputs[:, start : start + length]
        if documents is not None:
            other = documents[:, start : start + length] != documents[:, -length:]
            earlier = earlier.masked_fill(other[..., None], 0.0)
        out = out + taps[back] * earlier
    return out


def convolution_state(
    y: Tensor, reach: int, tokens: Tokens, before: Tensor | None = None, document: Tensor | None = None
) -> Tensor:
    """The last `reach` inputs [B, reach, C] of y and of what went before, zero outside the last token's document."""
    inputs, documents = _with_past(y, reach, tokens, before, document)
    last = inputs[:, y.shape[1] :]
    if documents is None:
        return last
    return last.masked_fill((documents[:, y.shape[1] :] != documents[:, -1:])[..., None], 0.0)


def _with_past(
    y: Tensor, reach: int, tokens: Tokens, before: Tensor | None, document: Tensor | None
) -> tuple[Tensor, Tensor | None]:
    """y behind `reach` earlier inputs, zeros where there were none, and the document of each; None without any."""
    if tokens.padding is not None:
        y = y.masked_fill(tokens.padding[..., None], 0.0)
    inputs = functional.pad(y, (0, 0, reach, 0)) if before is None else torch.cat([before, y], dim=1)
    if tokens.document is None:
        return inputs, None
    first = tokens.document[:, :1] if document is None else document
    return inputs, torch.cat([first.expand(-1, reach), tokens.document], dim=1)
