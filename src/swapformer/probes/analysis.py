"""Measures of attention heads and of positions, as pure functions of tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from swapformer.task.base import IGNORE


def head_similarity(weights_BHQK: Tensor, counted_BQ: Tensor) -> tuple[Tensor, int]:
    """Cosine similarity between the attention maps of every two heads: its sum over queries [H, H], and their number.

    s(a, b) = w_a·w_b / (‖w_a‖ ‖w_b‖) for one query, with w_a head a's weights over the keys. Between 0, where no two
    heads attend to the same key, and 1, where all look alike; down to −1 where implied weights may be negative
    (linformer, nystrom, linear with a rotation). A query that sees nothing is left out.

    Args:
        weights_BHQK: attention weights of one layer.
        counted_BQ: queries that count, bool: not padding, nor those that may attend to one key only, such as the first
            one of a causal model, which say nothing of what heads learned.
    """
    counted = counted_BQ & (weights_BHQK != 0).any(dim=(1, 3))
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


class Totals(NamedTuple):
    """A sum over the queries that count, and their number, by head: float64 [H] each."""

    sums: Tensor
    counts: Tensor

    def __add__(self, other: object) -> Totals:
        assert isinstance(other, Totals)
        return Totals(self.sums + other.sums, self.counts + other.counts)

    @property
    def means(self) -> list[float | None]:
        """The mean of each head; None where no query counts."""
        return means(self.sums, self.counts)


def means(sums: Tensor, counts: Tensor) -> list[float | None]:
    """Sums over counts; None where nothing counts."""
    pairs = zip(sums.tolist(), counts.tolist(), strict=True)
    return [total / count if count else None for total, count in pairs]


def target_nats(logits: Tensor, targets: Tensor) -> Tensor:
    """The loss of each target in float64, shaped as they are; 0 if missing."""
    flat = cross_entropy(logits.double().flatten(0, -2), targets.flatten(), ignore_index=IGNORE, reduction="none")
    return flat.view_as(targets)


def attention_shares(weights_BHQK: Tensor) -> Tensor:
    """Weights as shares of a query's attention, float64: |w| / Σ|w|, since some normalisers give no distribution.

    Implied weights may be negative, and then it is their size that says what is attended to. A query that attends to
    nothing keeps zeros.
    """
    sizes = weights_BHQK.double().abs()
    return sizes / sizes.sum(dim=-1, keepdim=True).clamp(min=torch.finfo(sizes.dtype).tiny)


def relative_distance(shares_BHQK: Tensor, allowed_BHQK: Tensor, distance_BHQK: Tensor, counted_BHQ: Tensor) -> Totals:
    """The reach of a head: Σ_j a_ij |i − j| over its mean on the allowed keys, which is 1 for uniform attention.

    A query all of whose keys are at distance 0 says nothing and does not count.

    Args:
        shares_BHQK: shares of attention.
        allowed_BHQK: keys that the query may attend to, bool.
        distance_BHQK: |i − j| in tokens.
        counted_BHQ: queries that count, bool; of a head, since heads may see other keys.
    """
    far = distance_BHQK.double()
    uniform = (far * allowed_BHQK).sum(-1) / allowed_BHQK.sum(-1).clamp(min=1)
    found = (far * shares_BHQK).sum(-1) / uniform.clamp(min=torch.finfo(far.dtype).tiny)
    return _over_queries(found, counted_BHQ & (uniform > 0))


def relative_entropy(shares_BHQK: Tensor, allowed_BHQK: Tensor, counted_BHQ: Tensor) -> Totals:
    """The spread of a head: −Σ_j a_ij ln a_ij / ln n of n allowed keys: 1 for uniform attention, 0 for one key.

    Queries with fewer than two allowed keys do not count. Arguments as for `relative_distance`.
    """
    keys = allowed_BHQK.sum(-1)
    entropy = -torch.special.xlogy(shares_BHQK, shares_BHQK).sum(-1)
    return _over_queries(entropy / keys.clamp(min=2).double().log(), counted_BHQ & (keys > 1))


def share_on(shares_BHQK: Tensor, chosen_BHQK: Tensor, counted_BHQ: Tensor) -> Totals:
    """The share of attention that falls on chosen keys: Σ_j a_ij over the chosen j. Arguments as above."""
    return _over_queries((shares_BHQK * chosen_BHQK).sum(-1), counted_BHQ)


def previous_keys(order_BT: Tensor) -> Tensor:
    """The token right before each query, bool [B, 1, Q, K]."""
    return (order_BT[:, None, :] == order_BT[:, :, None] - 1)[:, None]


def next_keys(order_BT: Tensor, padding_BT: Tensor | None) -> Tensor:
    """The token right behind each query, unless it is padding, bool [B, 1, Q, K]."""
    behind = order_BT[:, None, :] == order_BT[:, :, None] + 1
    return (behind if padding_BT is None else behind & ~padding_BT[:, None, :])[:, None]


def keys_after_same(ids_BT: Tensor, document_BT: Tensor | None = None) -> Tensor:
    """The tokens after earlier occurrences of each query's token, bool [B, 1, Q, K]: j ≤ i with t_{j−1} = t_i.

    Attention that falls there is the prefix-matching score of induction heads (Olsson et al. 2022, arXiv:2209.11895).
    A token that begins a document comes after none.
    """
    length = ids_BT.shape[1]
    same = ids_BT[:, :, None] == ids_BT.roll(1, 1)[:, None, :]
    place = torch.arange(length, device=ids_BT.device)
    behind = place > 0
    if document_BT is not None:
        behind = (behind & (document_BT == document_BT.roll(1, 1)))[:, None, :]
    return (same & (place[None, :] <= place[:, None]) & behind)[:, None]


def answer_keys(ids_BT: Tensor, targets_BT: Tensor) -> Tensor:
    """The tokens that hold the symbol that a query is to answer with, bool [B, 1, Q, K]."""
    return (ids_BT[:, None, :] == targets_BT[:, :, None])[:, None]


def rarest_keys(frequency_BT: Tensor, allowed_BHQK: Tensor) -> Tensor:
    """Those of the allowed keys whose symbol is the rarest among them, bool [B, H, Q, K].

    Heads that look there are the rare-token heads of Voita et al. 2019 (arXiv:1905.09418).

    Args:
        frequency_BT: how often the symbol at each position occurs in the data.
        allowed_BHQK: keys that the query may attend to, bool.
    """
    often = frequency_BT[:, None, None, :].double().masked_fill(~allowed_BHQK, torch.inf)
    return allowed_BHQK & (often == often.amin(-1, keepdim=True))


def without_key(shares_BHQK: Tensor, allowed_BHQK: Tensor, key_BHQK: Tensor) -> tuple[Tensor, Tensor]:
    """Shares and allowed keys as they are when some keys are left out: what remains is shared out again."""
    return attention_shares(shares_BHQK.masked_fill(key_BHQK, 0.0)), allowed_BHQK & ~key_BHQK


def shuffled_keys(weights_BHQK: Tensor, allowed_BHQK: Tensor, generator: torch.Generator) -> Tensor:
    """The weights of each query of each head in a random order among the keys that it may attend to, each drawn again.

    A row keeps its weights, so its entropy too; which keys have them is left to chance.
    """
    barred = ~allowed_BHQK.expand_as(weights_BHQK)
    noise = torch.rand(weights_BHQK.shape, generator=generator).masked_fill(barred, 2.0)
    allowed_first = barred.long().argsort(dim=-1, stable=True)
    return torch.zeros_like(weights_BHQK).scatter(-1, allowed_first, weights_BHQK.gather(-1, noise.argsort(dim=-1)))


def pattern_divergence(shares_BHQK: Tensor, counted_BQ: Tensor) -> Totals:
    """Jensen–Shannon divergence of heads, H(mean_h a_h) − mean_h H(a_h) in nats, summed over queries that count: [1].

    0 where all heads attend alike, ln H where no two share a key, so that exp of it is an effective number of patterns.

    Args:
        shares_BHQK: shares of attention.
        counted_BQ: queries that count, bool.
    """
    mixed = shares_BHQK.mean(dim=1)
    entropies = -torch.special.xlogy(shares_BHQK, shares_BHQK).sum(-1).mean(dim=1)
    divergence = -torch.special.xlogy(mixed, mixed).sum(-1) - entropies
    return _over_queries(divergence[:, None], counted_BQ[:, None])


def logit_variance(logits_BHQK: Tensor, allowed_BHQK: Tensor) -> Tensor:
    """Variance of each query's logits over the keys that it may attend to, Σ_j (l_j − l̄)² / n, float64 [B, H, Q].

    Args:
        logits_BHQK: whatever stands at keys that may not be attended to, −∞ included, does not count.
        allowed_BHQK: keys that the query may attend to, bool.
    """
    keys = allowed_BHQK.sum(-1, keepdim=True).clamp(min=1)
    logits = logits_BHQK.double().masked_fill(~allowed_BHQK, 0.0)
    off = (logits - logits.sum(-1, keepdim=True) / keys).masked_fill(~allowed_BHQK, 0.0)
    return off.square().sum(-1) / keys.squeeze(-1)


def slope_of_weights(weights_BHQK: Tensor, allowed_BHQK: Tensor) -> Tensor:
    """Σ_j (a_j − a_j²) / (1 − 1/n), float64 [B, H, Q]: the trace of softmax's Jacobian over that of uniform weights.

    Σ a is 1, or less where a sink or `softmax1` takes a part. Meaningful for queries with n ≥ 2 allowed keys. Arguments
    as for `logit_variance`.
    """
    keys, weights = allowed_BHQK.sum(-1).clamp(min=2).double(), weights_BHQK.double()
    return (weights - weights.square()).sum(-1) / (1 - 1 / keys)


def effective_rank(singular_values: Tensor) -> Tensor:
    """exp(−Σ p_i ln p_i) with p_i = σ_i / Σ σ of matrices with singular values σ [..., n]: between 1 and n, 0 of zeros.

    Roy & Vetterli 2007, “The effective rank”, EUSIPCO.
    """
    total = singular_values.sum(-1, keepdim=True)
    p = singular_values / total.clamp(min=torch.finfo(singular_values.dtype).tiny)
    return (-torch.special.xlogy(p, p).sum(-1)).exp() * (total.squeeze(-1) > 0)


def singular_values_of_product(left: Tensor, right: Tensor) -> Tensor:
    """The singular values of A Bᵀ, [..., min(D, E)], for A and B [..., D, E], without the D × D product.

    With A = Q_A R_A and B = Q_B R_B they are those of R_A R_Bᵀ; all others are zero.
    """
    return torch.linalg.svdvals(torch.linalg.qr(left).R @ torch.linalg.qr(right).R.mT)


def first_order_cost(outputs_BQHE: Tensor, gradient_BQHE: Tensor) -> Tensor:
    """Σ_b |Σ_qe z·g| for the heads' outputs z and the gradient g of each sequence's own loss: [H], in the loss's unit.

    A term is how much the loss of a sequence changes, to first order, when a head's output becomes zero.
    """
    return (outputs_BQHE * gradient_BQHE).double().sum(dim=(1, 3)).abs().sum(dim=0)


def rank_correlation(first: Sequence[float], second: Sequence[float]) -> float | None:
    """Spearman's correlation of two rows of numbers, equal ones with their mean rank; None where a row is constant."""
    rows = torch.tensor([list(first), list(second)], dtype=torch.float64)
    below, equal = rows[:, :, None] > rows[:, None, :], rows[:, :, None] == rows[:, None, :]
    ranks = below.sum(-1).double() + (equal.sum(-1).double() - 1) / 2
    spread = ranks - ranks.mean(-1, keepdim=True)
    size = spread.square().sum(-1).prod().sqrt()
    return float(spread.prod(0).sum() / size) if size else None


def _over_queries(values_BHQ: Tensor, counted_BHQ: Tensor) -> Totals:
    counted = counted_BHQ.expand_as(values_BHQ)
    return Totals(values_BHQ.masked_fill(~counted, 0.0).sum(dim=(0, 2)), counted.sum(dim=(0, 2)).double())
