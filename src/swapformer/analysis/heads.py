"""Measures of attention heads, as pure functions of their weights."""

from __future__ import annotations

import torch
from torch import Tensor


def head_similarity(weights_BHQK: Tensor) -> Tensor:
    """Cosine similarity between the attention maps of every two heads, [H, H].

    s(a, b) = mean over sequences and queries of w_a·w_b / (‖w_a‖ ‖w_b‖), with w_a head a's weights over the keys of one
    query. Between 0, where no two heads look at the same place, and 1, where all look alike. A query that sees one
    key has similarity 1 whatever its heads have learned, so the first query of a causal model is left out, as is every
    query that sees nothing.

    Args:
        weights_BHQK: attention weights of one layer, at least two queries.
    """
    norms = weights_BHQK.norm(dim=-1)
    seen = (weights_BHQK > 0).sum(dim=-1).amax(dim=1) > 1  # [B, Q]
    unit = weights_BHQK / norms.clamp(min=torch.finfo(weights_BHQK.dtype).tiny)[..., None]
    similarity_BQHH = torch.einsum("bhqk,bgqk->bqhg", unit, unit)
    return similarity_BQHH[seen].mean(dim=0)


def mean_over_pairs(matrix_HH: Tensor) -> float | None:
    """The mean of a symmetric matrix off its diagonal; None for a single head, which has no pairs."""
    heads = matrix_HH.shape[0]
    if heads < 2:
        return None
    return float((matrix_HH.sum() - matrix_HH.diagonal().sum()) / (heads * (heads - 1)))
