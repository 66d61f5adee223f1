"""Measures of attention heads and of positions, as pure functions of tensors."""

from __future__ import annotations

import torch
from torch import Tensor


def head_similarity(weights_BHQK: Tensor, counted_BQ: Tensor | None = None) -> tuple[Tensor, int]:
    """Cosine similarity between the attention maps of every two heads: its sum over queries [H, H], and their number.

    s(a, b) = w_a·w_b / (‖w_a‖ ‖w_b‖) for one query, with w_a head a's weights over the keys. Between 0, where no two
    heads attend to the same key, and 1, where all look alike; down to −1 where implied weights may be negative
    (linformer, nystrom, linear with a rotation). A query with weight on one key alone, the same for all heads, says
    nothing of what they learned: the first query of a causal model is left out, as is every query that sees nothing.

    Args:
        weights_BHQK: attention weights of one layer.
        counted_BQ: queries that count, bool; padding should not. None for all.
    """
    several = (weights_BHQK != 0).sum(dim=-1).amax(dim=1) > 1  # [B, Q]
    counted = several if counted_BQ is None else several & counted_BQ
    norms = weights_BHQK.norm(dim=-1, keepdim=True)
    unit = weights_BHQK / norms.clamp(min=torch.finfo(weights_BHQK.dtype).tiny)
    similarity_BQHH = torch.einsum("bhqk,bgqk->bqhg", unit, unit)
    return similarity_BQHH[counted].sum(dim=0), int(counted.sum())


def mean_over_pairs(matrix_HH: Tensor) -> float | None:
    """The mean of a symmetric matrix off its diagonal; None for a single head, which has no pairs."""
    heads = matrix_HH.shape[0]
    if heads < 2:
        return None
    return float((matrix_HH.sum() - matrix_HH.diagonal().sum()) / (heads * (heads - 1)))


def totals_by_position(values_BT: Tensor, counted_BT: Tensor) -> tuple[Tensor, Tensor]:
    """Sums of the values that count at each position, and how many sequences count there, [T] each.

    Args:
        values_BT: one number for each position; those that do not count may be anything, NaN included.
        counted_BT: which count, bool.
    """
    return values_BT.masked_fill(~counted_BT, 0.0).sum(dim=0), counted_BT.sum(dim=0)


def sums_of_powers(values_BTD: Tensor, counted_BT: Tensor | None = None) -> Tensor:
    """Σ 1, Σ x and Σ x² in float64, [3], over all entries of the places that count.

    Args:
        values_BTD: such as the stream.
        counted_BT: which places count, bool; padding should not. None for all.
    """
    x = values_BTD.double()
    x = x.flatten(0, 1) if counted_BT is None else x[counted_BT.expand(x.shape[:2])]
    return torch.stack([torch.full((), float(x.numel()), dtype=x.dtype), x.sum(), x.square().sum()])
