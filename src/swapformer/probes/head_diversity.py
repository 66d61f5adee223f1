"""Probe of head diversity: how many patterns heads have, how alike they look, and the ranks of what they compute."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import fmean

import torch
from torch import Tensor, nn

from swapformer.model import taps
from swapformer.model.layers import Role, origin_of
from swapformer.model.topology import Topology
from swapformer.probes.analysis import (
    Totals,
    attention_shares,
    effective_rank,
    head_similarity,
    mean_over_pairs,
    pattern_divergence,
    shuffled_keys,
    singular_values_of_product,
)
from swapformer.probes.attention_statistics import WEIGHTS, watched_weights
from swapformer.probes.base import Finding, Probe, validation
from swapformer.probes.head_scores import matrix_of_heads
from swapformer.random import stream
from swapformer.ranges import Count
from swapformer.results.shapes import Profile, Shape
from swapformer.task.base import Task

RANKS = {
    "rank_qk": "of W_Q W_Kᵀ, which matches queries and keys",
    "rank_ov": "of W_O W_V, which moves what is attended to into the stream",
    "rank_map": "of the attention map, a mean over sequences",
}
"""Effective rank → of what it is."""
MATRICES = (Role.QUERY, Role.KEY, Role.VALUE, Role.ATTENTION_OUT)
"""The roles of an attention's own matrices; each has one of them."""


@dataclass
class _Layer:
    """The findings of a layer: over queries of all sequences, and by head."""

    similarity: list[tuple[Tensor, int]] = field(default_factory=list)
    shuffled: list[tuple[Tensor, int]] = field(default_factory=list)
    divergence: list[Totals] = field(default_factory=list)
    maps: list[Tensor] = field(default_factory=list)
    ranks: dict[str, list[float]] = field(default_factory=dict)


class HeadDiversity(Probe):
    """Diversity of the self-attention heads of a decoder or encoder, averaged over layers (and heads, for ranks).

    `probe/patterns`, between 1 and the H heads of a layer, is the effective number of their patterns: exp of the mean
    over queries of H(mean_h a_h) − mean_h H(a_h), the Jensen–Shannon divergence of the heads' attention a_h in nats.
    `probe/similarity_above_null` is the mean cosine of two heads' attention less `probe/similarity_null`, the same
    after each query of each head has its weights permuted among the keys that it may attend to: that keeps how flat
    they are, and leaves only chance for an agreement on keys. A layer with one head has no pairs and is left out.

    `probe/rank_qk`, `rank_ov` and `rank_map` are effective ranks, exp of the entropy of normalised singular values
    (Roy & Vetterli 2007): of each head's W_Q W_Kᵀ and W_O W_V, at most its width, and of its attention map over real
    tokens. Norms, rotations and biases around the matrices are left out. A layer whose attention has no such four
    matrices has no rank of them.

    The shapes are matrices of the ranks by layer and head, and a profile of patterns and of similarities by layer.

    Args:
        sequences: of the first validation batch at the training length, at most.

    Raises:
        ValueError: for a model without attention weights.
    """

    def __init__(self, *, sequences: Count) -> None:
        self.sequences = sequences

    def unsuited(self, model: Topology, task: Task) -> str | None:
        problem = taps.missing(model, WEIGHTS)
        return None if problem is None else f"head_diversity looks at attention weights: {problem}"

    def measure(self, model: Topology, task: Task) -> Finding:
        batch = next(iter(validation(model, task, 1)))
        layers: dict[int, _Layer] = {}
        for index, weights, allowed in watched_weights(model, batch):
            found = layers.setdefault(index, _Layer())
            for row in range(min(self.sequences, len(weights))):
                real = torch.ones(weights.shape[2], dtype=torch.bool) if batch.padding is None else ~batch.padding[row]
                may = torch.ones_like(weights[:1], dtype=torch.bool)
                if allowed is not None:
                    may = allowed[min(row, len(allowed) - 1)][None].expand_as(may)
                _look(found, weights[row : row + 1].double(), may, real, stream("head_diversity", index, row))
            matrices = head_matrices(model.stack.layers[index].get_submodule("attention"), weights.shape[1])
            found.ranks = {name: effective_rank(values).tolist() for name, values in matrices.items()}
            found.ranks["rank_map"] = torch.stack(found.maps).mean(0).tolist()
        return _finding({f"layer {index + 1}": layers[index] for index in sorted(layers)})


def _look(found: _Layer, weights: Tensor, allowed: Tensor, real: Tensor, generator: torch.Generator) -> None:
    """Add the attention of one sequence, [1, H, T, T], to what is found of a layer."""
    counted = (real & (allowed[0].sum(-1).amax(0) > 1))[None]
    found.similarity.append(head_similarity(weights, counted))
    found.shuffled.append(head_similarity(shuffled_keys(weights, allowed, generator), counted))
    found.divergence.append(pattern_divergence(attention_shares(weights), counted))
    found.maps.append(effective_rank(torch.linalg.svdvals(weights[0][:, real][:, :, real])))


def head_matrices(attention: nn.Module, heads: int) -> dict[str, Tensor]:
    """The singular values of W_Q W_Kᵀ and W_O W_V of each head, [H, ·]; nothing where these are not its matrices."""
    held: dict[Role, list[Tensor]] = {}
    for name, weight in attention.named_parameters():
        held.setdefault(origin_of(name, weight).role, []).append(weight.detach().double())
    wanted = [[w for w in held.get(role, []) if w.dim() == 2] for role in MATRICES]
    if any(len(each) != 1 for each in wanted):
        return {}
    query, key, value, out = (each[0] for each in wanted)
    width = out.shape[1] // heads
    if query.shape[0] != heads * width or key.shape != value.shape or key.shape[0] % width:
        return {}
    query_HDE, out_HDE = _by_head(query, width), out.view(len(out), heads, width).transpose(0, 1)
    shared = heads * width // key.shape[0]
    key_HDE, value_HDE = (_by_head(each, width).repeat_interleave(shared, 0) for each in (key, value))
    found = {"rank_ov": singular_values_of_product(out_HDE, value_HDE)}
    if Role.SCORE not in held:  # whose matrices stand between queries and keys
        found["rank_qk"] = singular_values_of_product(query_HDE, key_HDE)
    return found


def _by_head(weight: Tensor, width: int) -> Tensor:
    """[G·E, D] → [G, D, E]."""
    return weight.view(-1, width, weight.shape[1]).mT


def _similarity(sums: list[tuple[Tensor, int]]) -> float | None:
    matrices, counts = zip(*sums, strict=True)
    return mean_over_pairs(sum(matrices[1:], matrices[0]) / max(sum(counts), 1))


def _finding(layers: Mapping[str, _Layer]) -> Finding:
    found: dict[str, dict[str, float]] = {"patterns": {}, "similarity": {}, "similarity_null": {}}
    for name, layer in layers.items():
        total = sum(layer.divergence[1:], layer.divergence[0])
        found["patterns"][name] = float((total.sums.sum() / total.counts.sum().clamp(min=1)).exp())
        for key, sums in (("similarity", layer.similarity), ("similarity_null", layer.shuffled)):
            if (mean := _similarity(sums)) is not None:
                found[key][name] = mean
    ranks = {key: {name: layer.ranks[key] for name, layer in layers.items() if key in layer.ranks} for key in RANKS}
    metrics = {"probe/patterns": fmean(found["patterns"].values())}
    if found["similarity"]:
        null = fmean(found["similarity_null"].values())
        metrics |= {
            "probe/similarity_null": null,
            "probe/similarity_above_null": fmean(found["similarity"].values()) - null,
        }
    metrics |= {
        f"probe/{key}": fmean(value for row in rows.values() for value in row) for key, rows in ranks.items() if rows
    }
    shapes: dict[str, Shape] = {
        f"heads/{key}": matrix_of_heads(key.replace("_", " ").capitalize(), f"Effective rank {RANKS[key]}.", rows)
        for key, rows in ranks.items()
        if rows
    }
    shapes["patterns"] = _profile("Effective number of patterns", "patterns", found["patterns"])
    shapes |= {
        key: _profile(f"How alike heads look{', weights permuted among keys' * (key != 'similarity')}", "cosine", means)
        for key, means in found.items()
        if key != "patterns" and means
    }
    return Finding(metrics, shapes)


def _profile(title: str, y: str, values: Mapping[str, float]) -> Profile:
    return Profile(title, "A mean over queries, by layer.", y, "", list(values), ["end"], [list(values.values())])
