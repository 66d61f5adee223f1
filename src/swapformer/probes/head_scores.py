"""Scores of attention heads, gathered over the queries of many batches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil
from typing import NamedTuple

import torch
from torch import Tensor

from swapformer.probes.analysis import (
    Totals,
    answer_keys,
    attention_shares,
    keys_after_same,
    next_keys,
    previous_keys,
    rarest_keys,
    relative_distance,
    relative_entropy,
    share_on,
    without_key,
)
from swapformer.results.shapes import Matrix
from swapformer.task.base import Batch, target_mask
from swapformer.training.inputs import tokens_of

SCORES = {
    "answer": "share of attention on tokens that hold the symbol to be answered with, where there are any",
    "distance": "mean distance of what is attended to, over that of uniform attention on the allowed keys",
    "entropy": "entropy of the attention, over that of uniform attention on the allowed keys",
    "first_key": "share of attention on the sequence's first token",
    "distance_rest": "relative distance with the first token left out",
    "entropy_rest": "relative entropy with the first token left out",
    "future": "share of attention on later tokens",
    "next_token": "share of attention on the token right behind, which is the target where the next token is predicted",
    "previous_token": "share of attention on the token right before, where it is allowed",
    "prefix_matching": "share of attention on what followed earlier occurrences of the query's token",
    "rare_token": "share of attention on the rarest symbol among the allowed keys",
}
"""Score → what it says of a head."""
BINS = 64
"""Bins of a histogram of distances, at most."""


class SeenAttention(NamedTuple):
    """Part of a layer's attention, and what is told of it.

    Attributes:
        shares, allowed, distance: [B, H, Q, K]; `distance` is key minus query in tokens.
        counted: queries, bool [B, H, Q]: those that are scored and may attend to several keys.
        first: the first token of each sequence, and of each document in it, as a key, bool [B, 1, 1, K].
        following: the token right behind each query, whether or not it is allowed, bool [B, 1, Q, K].
        targets: score → the keys that it looks for, bool, all of them allowed.
    """

    shares: Tensor
    allowed: Tensor
    distance: Tensor
    counted: Tensor
    first: Tensor
    following: Tensor
    targets: Mapping[str, Tensor]

    @classmethod
    def of(
        cls, batch: Batch, weights: Tensor, allowed: Tensor | None, frequency: Tensor | None, answers: bool = True
    ) -> SeenAttention:
        """The observations of a batch.

        Args:
            batch: B sequences.
            weights: [B, H, T, T].
            allowed: keys that queries may attend to, bool [B|1, H|1, T, T]; None for all.
            frequency: how often each symbol occurs in the data, [V]; None where inputs are values.
            answers: whether each query answers with a symbol like those of the inputs.
        """
        shares, tokens = attention_shares(weights), tokens_of(batch)
        order = tokens.order.expand(batch.inputs.shape[:2])
        allowed = torch.ones_like(shares, dtype=torch.bool) if allowed is None else allowed.expand_as(shares)
        counted = _scored(batch)[:, None] & (allowed.sum(-1) > 1) & (shares.sum(-1) > 0)
        ahead = (order[:, None, :] - order[:, :, None])[:, None]
        real = order if batch.padding is None else order.masked_fill(batch.padding, order.shape[1])
        first = real == real.amin(1, keepdim=True)
        if tokens.document is not None:
            first = first | (tokens.document != tokens.document.roll(1, 1)) & (order > 0) & (real == order)
        targets = {"previous_token": previous_keys(order)}
        if frequency is not None:
            targets["prefix_matching"] = keys_after_same(batch.inputs, tokens.document)
            targets["rare_token"] = rarest_keys(frequency[batch.inputs], allowed)
            targets |= {"answer": answer_keys(batch.inputs, batch.targets)} if answers else {}
        return cls(
            shares,
            allowed,
            ahead.expand_as(shares),
            counted,
            first[:, None, None, :],
            next_keys(order, batch.padding),
            {key: each & allowed for key, each in targets.items()},
        )

    @property
    def uniform(self) -> Tensor:
        """The shares of uniform attention."""
        return attention_shares(self.allowed)

    def totals(self) -> Iterator[tuple[str, Totals]]:
        """Every score, summed over queries."""
        far = self.distance.abs()
        rest, among = without_key(self.shares, self.allowed, self.first)
        more = self.counted & (rest.sum(-1) > 0)
        yield "distance", relative_distance(self.shares, self.allowed, far, self.counted)
        yield "entropy", relative_entropy(self.shares, self.allowed, self.counted)
        yield "first_key", share_on(self.shares, self.first, self.counted)
        yield "distance_rest", relative_distance(rest, among, far, more)
        yield "entropy_rest", relative_entropy(rest, among, more)
        yield "future", share_on(self.shares, self.distance > 0, self.counted)
        yield "next_token", share_on(self.shares, self.following, self.counted & self.following.any(-1))
        for name, keys in self.targets.items():
            yield name, share_on(self.shares, keys, self.counted & keys.any(-1))

    def binned(self, shares: Tensor, length: int) -> Tensor:
        """The attention of the counted queries by distance, summed: float64 [H, bins]."""
        found = (shares * self.counted[..., None]).transpose(0, 1).flatten(1)
        where = (self.distance.abs() // bin_width(length)).transpose(0, 1).flatten(1)
        return torch.zeros(len(found), BINS, dtype=torch.float64).scatter_add_(1, where, found)


@dataclass
class HeadScores:
    """The findings of the heads of a layer."""

    totals: dict[str, Totals] = field(default_factory=dict)
    distances: Tensor | None = None

    def add(self, seen: SeenAttention) -> None:
        """Add the queries of another part."""
        for name, each in seen.totals():
            self.totals[name] = each if name not in self.totals else self.totals[name] + each
        binned = seen.binned(seen.shares, seen.shares.shape[-1])
        self.distances = binned if self.distances is None else self.distances + binned

    def of(self, name: str) -> list[float | None]:
        """A score of each head; none where no query counts."""
        return self.totals[name].means if name in self.totals else []

    def known(self, name: str) -> list[float]:
        """Those that are there."""
        return [value for value in self.of(name) if value is not None]


def _scored(batch: Batch) -> Tensor:
    """Queries that answer something, bool [B, T]: those with a target; all tokens where a sequence has one answer."""
    real = torch.ones(batch.inputs.shape[:2], dtype=torch.bool)
    if batch.padding is not None:
        real = ~batch.padding
    there = target_mask(batch.targets)
    if there.shape[:2] != real.shape:
        return real
    return real & (there if there.dim() == 2 else there.any(-1))


def bin_width(length: int) -> int:
    """Tokens of a bin of distances."""
    return ceil(length / BINS)


def matrix_of_heads(
    title: str,
    caption: str,
    rows: Mapping[str, Sequence[float | None]],
    *,
    high: float | None = None,
    unit: str = "",
) -> Matrix:
    """Numbers by layer and head, from 0 on; layers with fewer heads have empty places."""
    width = max(map(len, rows.values()), default=0)
    return Matrix(
        title, caption, list(rows), [f"head {head + 1}" for head in range(width)],
        [[*each, *[None] * (width - len(each))] for each in rows.values()],
        0.0, high, unit=unit, per_seed=True,
    )  # fmt: skip
