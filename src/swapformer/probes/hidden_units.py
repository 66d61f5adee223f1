"""Measures of hidden units, as pure functions of tensors: how few carry an activation, and what they tell apart."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import numpy as np
import torch
from scipy.cluster.vq import kmeans2
from scipy.stats import rankdata
from torch import Tensor


def carriers(activations_NF: Tensor, share: float) -> Tensor:
    """The smallest number of units that carry a share of Σ|a|, for each token: [N], 0 where all are zero.

    Args:
        activations_NF: a of N tokens.
        share: in (0, 1].
    """
    sizes = activations_NF.double().abs().sort(dim=-1, descending=True).values
    reached = sizes.cumsum(-1)
    # A sum of the same numbers in another order differs in its last digits.
    needed = share * reached[:, -1:] * (1 - 1e-12)
    return ((reached < needed).sum(-1) + 1) * (reached[:, -1] > 0)


def area_under_curve(values_NF: Tensor, classes_N: Tensor, number: int) -> Tensor:
    """AUC[c, f] = P(x_f of a token of class c > x_f of another's) + ½ P(equal), float64 [C, F]; NaN of an empty class.

    The area under the ROC curve, by the rank sum of Mann & Whitney (1947): ½ where the unit says nothing of the class,
    1 where every token of it lies above all others.

    Args:
        values_NF: x of N tokens.
        classes_N: the class of each, in 0 … C − 1.
        number: C.
    """
    ranks_NF = torch.from_numpy(rankdata(values_NF.double().numpy(), axis=0))
    member_CN = torch.nn.functional.one_hot(classes_N, number).double().T
    inside = member_CN.sum(1, keepdim=True)
    pairs = inside * (len(classes_N) - inside)
    return (member_CN @ ranks_NF - inside * (inside + 1) / 2) / pairs.masked_fill(pairs == 0, torch.nan)


def clusters(values_NF: Tensor, number: int, seed: int) -> Tensor:
    """The cluster of each row, [N], by k-means from centres that are drawn far apart.

    The start is k-means++ (Arthur & Vassilvitskii 2007), the rest Lloyd's steps, both scipy's.

    Args:
        values_NF: N rows.
        number: of clusters; fewer where fewer rows differ.
        seed: draws the first centres.
    """
    rows = values_NF.double().numpy()
    number = min(number, len(np.unique(rows, axis=0)))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="One of the clusters is empty")
        _, labels = kmeans2(rows, number, iter=30, minit="++", seed=np.random.default_rng(seed))
    return torch.from_numpy(labels).long()


def mutual_information(first_N: Tensor, second_N: Tensor) -> float:
    """Normalised mutual information of two labellings, 2 I(A; B) / (H(A) + H(B)), between 0 and 1.

    0 where one says nothing of the other, 1 where they are the same but for names, or where both have one label alone
    (the arithmetic mean of Vinh et al. 2010, as in scikit-learn).
    """
    joint = torch.zeros(int(first_N.max()) + 1, int(second_N.max()) + 1, dtype=torch.float64)
    joint.index_put_((first_N, second_N), torch.ones(len(first_N), dtype=torch.float64), accumulate=True)
    joint /= len(first_N)
    apart = _entropy(joint.sum(1)) + _entropy(joint.sum(0))
    return float(2 * (apart - _entropy(joint)) / apart) if apart > 0 else 1.0


def _entropy(p: Tensor) -> Tensor:
    return -torch.special.xlogy(p, p).sum()


CLASSES = ("newline", "space", "digit", "uppercase", "lowercase", "bracket", "quote", "other")
"""What a character can be: see `character_class`."""


def character_class(text: str) -> str:
    """The class of a token, by its first character: `_` and operators are `other`, as is an empty token."""
    first = text[:1]
    kinds = {
        "newline": first in "\r\n", "space": first.isspace(), "digit": first.isdigit(), "uppercase": first.isupper(),
        "lowercase": first.islower(), "bracket": first in "()[]{}", "quote": first in "\"'`",
    }  # fmt: skip
    return next((name for name, holds in kinds.items() if first and holds), "other")


def classes_of(tokens: Sequence[str]) -> Tensor:
    """The number in `CLASSES` of each token id, [V]."""
    return torch.tensor([CLASSES.index(character_class(text)) for text in tokens])
