"""Normalisers that divide exponentials by a sum."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from swapformer.model.dims import Dims
from swapformer.model.layers import gain
from swapformer.model.normaliser.base import Normaliser, softmax


class Softmax(Normaliser):
    """w_j = exp(s_j) / Σ exp(s) over the allowed keys (Vaswani et al. 2017, arXiv:1706.03762)."""

    is_softmax = True

    def forward(self, logits_BHQK: Tensor) -> Tensor:
        return softmax(logits_BHQK)


class Softmax1(Normaliser):
    """w_j = exp(s_j) / (1 + Σ exp(s)): a query may attend to nothing (Miller 2023, “Attention is off by one”)."""

    sums_to_one = False

    def forward(self, logits_BHQK: Tensor) -> Tensor:
        return functional.pad(logits_BHQK, (1, 0)).softmax(dim=-1)[..., 1:]


class Sink(Normaliser):
    """w_j = exp(s_j) / (exp(a_h) + Σ exp(s)), with one learned logit a_h for each head (OpenAI 2025, arXiv:2508.10925).

    Args:
        start: a at initialisation; 0 starts as softmax1.
    """

    sums_to_one = False

    def __init__(self, dims: Dims, *, start: float) -> None:
        super().__init__(dims)
        self.sink = gain(dims.num_heads, start=start)

    def forward(self, logits_BHQK: Tensor) -> Tensor:
        sink = self.sink.to(logits_BHQK.dtype)[:, None, None].expand(*logits_BHQK.shape[:-1], 1)
        return torch.cat([sink, logits_BHQK], dim=-1).softmax(dim=-1)[..., 1:]


class TopK(Normaliser):
    """Softmax over the k largest logits of each query, ties with the k-th included, zero for the others.

    Zhao et al. 2019 (Explicit Sparse Transformer, arXiv:1912.11637). With k keys or fewer it is softmax.

    Args:
        keys: k.

    Raises:
        ValueError: if k is below 1.
    """

    def __init__(self, dims: Dims, *, keys: int) -> None:
        super().__init__(dims)
        if keys < 1:
            raise ValueError(f"`keys` of the top-k normaliser must be at least 1, but it is {keys}.")
        self.keys = keys

    def forward(self, logits_BHQK: Tensor) -> Tensor:
        least = logits_BHQK.topk(min(self.keys, logits_BHQK.shape[-1]), dim=-1).values[..., -1:]
        return softmax(logits_BHQK.masked_fill(logits_BHQK < least, float("-inf")))
