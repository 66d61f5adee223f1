"""Parts against plainer implementations: the groups of `python -m benchmarks parts`, and that of norms."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

import torch
from torch import Tensor

from benchmarks.attention import bias, blocked, kernels, linear, memory
from benchmarks.decode import decode
from benchmarks.decoder import bf16, decoder
from benchmarks.measurement import Ratio, Slope, alternating, compare
from swapformer.errors import UsageError
from swapformer.model.dims import Dims
from swapformer.model.norm import LayerNorm, RMSNorm

EPS = 1e-5


def layer_norm(x: Tensor, weight: Tensor) -> Tensor:
    """Layer norm by its definition: centred, divided by the root of the population variance, scaled."""
    centred = x - x.mean(-1, keepdim=True)
    return centred * (centred.square().mean(-1, keepdim=True) + EPS).rsqrt() * weight


def rms_norm(x: Tensor, weight: Tensor) -> Tensor:
    """RMS norm by its definition: divided by the root of the mean square, scaled."""
    return x * (x.square().mean(-1, keepdim=True) + EPS).rsqrt() * weight


def norms(rounds: int, device: str) -> Iterator[Ratio]:
    """Norms of torch against those definitions: forward and backward over [8, 256, 384]."""
    settle = torch.cuda.synchronize if device == "cuda" else None
    dims = Dims(d_model=384, num_layers=1, num_heads=6, head_dim=64, max_len=256, vocab_size=2, bias=False)
    x, direction = (torch.randn(8, 256, 384, device=device) for _ in range(2))
    x.requires_grad_()

    def act(norm: Callable[[Tensor], Tensor], weight: Tensor) -> None:
        torch.autograd.grad(norm(x), [x, weight], direction)

    for part, written in ((LayerNorm, layer_norm), (RMSNorm, rms_norm)):
        norm = part(dims, eps=EPS, affine=True).to(device)
        weight = norm.weight
        assert weight is not None, "an affine norm has a weight"
        ours = partial(act, norm, weight)
        theirs = partial(act, partial(written, weight=weight), weight)
        pairs = alternating(ours, theirs, rounds, settle)
        name = f"{part.__name__} / written out, forward and backward, [8, 256, 384], {device}"
        yield compare(name, "ms", pairs, "≤ 1.05", lambda ratio: ratio <= 1.05)


Group = Callable[[int, str], Iterator[Ratio] | Iterator[Slope] | Iterator[Ratio | Slope]]
"""(rounds, device) → measurements."""

MEASURED: Mapping[str, Group] = {
    group.__name__: group for group in (kernels, bias, blocked, memory, linear, decoder, decode, norms, bf16)
}
ON_CUDA = ("kernels", "decoder", "decode", "norms")
"""Groups that are measured on a CUDA device too; the others are about a CPU."""


def measure(groups: Sequence[str], device: str | None, rounds: int) -> Iterator[Ratio | Slope]:
    """Measure the groups, or all, with two threads.

    Raises UsageError for a device that is not there, or a group that is about a CPU alone.
    """
    if device == "cuda" and (unfit := [group for group in groups if group not in ON_CUDA]):
        raise UsageError(
            f"--device cuda must be given for {', '.join(ON_CUDA)} alone, not for {', '.join(unfit)}, which are about "
            "a CPU"
        )
    if device == "cuda" and not torch.cuda.is_available():
        raise UsageError("--device cuda needs a CUDA device, but this machine has none; leave the option out.")
    devices = [device] if device else ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
    torch.set_num_threads(min(2, os.cpu_count() or 1))
    for kind in devices:
        for group in groups or MEASURED:
            if kind == "cpu" or group in ON_CUDA:
                yield from MEASURED[group](rounds, kind)
