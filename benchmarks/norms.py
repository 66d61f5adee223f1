"""Norms as torch computes them against norms written out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import torch
from torch import Tensor

from swapformer.model.dims import Dims
from swapformer.model.norm import LayerNorm, RMSNorm
from swapformer.tools.cost.ratio import Ratio, alternating, compare

EPS = 1e-5


def layer_norm(x: Tensor, weight: Tensor) -> Tensor:
    """The definition: centred, divided by the root of the population variance, scaled."""
    centred = x - x.mean(-1, keepdim=True)
    return centred * (centred.square().mean(-1, keepdim=True) + EPS).rsqrt() * weight


def rms_norm(x: Tensor, weight: Tensor) -> Tensor:
    """The definition: divided by the root of the mean square, scaled."""
    return x * (x.square().mean(-1, keepdim=True) + EPS).rsqrt() * weight


def norms(rounds: int, device: str) -> Iterator[Ratio]:
    """Forward and backward over [8, 256, 384]."""
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
