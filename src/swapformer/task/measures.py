"""Measures of answers that are symbols or classes, from sums over sequences, and which way is better."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from swapformer.interface import Direction


class SequenceSums(NamedTuple):
    """Sums over each evaluated sequence that has targets, float64 [N]: NLL in nats; targets, hits and bytes."""

    nats: Tensor
    tokens: Tensor
    hits: Tensor
    bytes: Tensor


def mean(amount: Tensor, per: Tensor) -> Tensor:
    """The ratio Σx/Σc over sequences [N]; NaN of none."""
    return amount.sum() / per.sum()


def standard_error(amount: Tensor, per: Tensor) -> Tensor:
    """Standard error over sequences of the ratio r = Σx/Σc: √(n/(n−1) · Σ(xᵢ − r·cᵢ)²) / Σc; NaN below two sequences.

    Linearised (Cochran, Sampling Techniques, 1977, section 6.4): tokens of one sequence are not independent, so the
    sequence is the unit. With equal counts it is the ordinary standard error of the sequences' means.
    """
    n = len(per)
    if n < 2:
        return torch.tensor(math.nan)
    residual = amount - mean(amount, per) * per
    return (residual.square().sum() * n / (n - 1)).sqrt() / per.sum()


def _matches(rows: SequenceSums) -> tuple[Tensor, Tensor]:
    return (rows.hits == rows.tokens).double(), torch.ones_like(rows.tokens)


def loss(rows: SequenceSums) -> Tensor:
    """Mean negative log-likelihood of a target token, in nats."""
    return mean(rows.nats, rows.tokens)


def loss_se(rows: SequenceSums) -> Tensor:
    """Standard error of `loss` over the evaluated sequences."""
    return standard_error(rows.nats, rows.tokens)


def perplexity(rows: SequenceSums) -> Tensor:
    """exp(loss)."""
    return loss(rows).exp()


def bits_per_byte(rows: SequenceSums) -> Tensor:
    """Bits spent on each UTF-8 byte of the targets: it compares vocabularies that write every character."""
    return mean(rows.nats, rows.bytes) / math.log(2)


def accuracy(rows: SequenceSums) -> Tensor:
    """Share of target tokens that are the model's most probable token."""
    return mean(rows.hits, rows.tokens)


def accuracy_se(rows: SequenceSums) -> Tensor:
    """Standard error of `accuracy` over the evaluated sequences."""
    return standard_error(rows.hits, rows.tokens)


def exact_match(rows: SequenceSums) -> Tensor:
    """Share of sequences whose target tokens are all right.

    Measured under teacher forcing, it equals the share that greedy generation gets exactly right: as long as every
    token so far was the argmax and right, generation feeds back exactly what teacher forcing feeds.
    """
    return mean(*_matches(rows))


def exact_match_se(rows: SequenceSums) -> Tensor:
    """Standard error of `exact_match` over the evaluated sequences."""
    return standard_error(*_matches(rows))


MEASURES: dict[str, Callable[[SequenceSums], Tensor]] = {
    measure.__name__: measure
    for measure in (
        loss, loss_se, perplexity, bits_per_byte, accuracy, accuracy_se, exact_match, exact_match_se,
    )
}  # fmt: skip

SEQUENCE_DIRECTIONS: dict[str, Direction] = {
    "loss": "lower",
    "perplexity": "lower",
    "bits_per_byte": "lower",
    "accuracy": "higher",
    "exact_match": "higher",
}


def directions_of(names: Iterable[str]) -> dict[str, Direction]:
    """The good direction of each of the named measures; standard errors have no direction."""
    return {name: SEQUENCE_DIRECTIONS[name] for name in names if name in SEQUENCE_DIRECTIONS}


CLASS_DIRECTIONS: Mapping[str, Direction] = {
    "loss": "lower",
    "accuracy": "higher",
    "macro_f1": "higher",
    "calibration_error": "lower",
}
