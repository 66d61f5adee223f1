"""Probe of head similarity: how alike the attention maps of the heads of a layer are."""

from __future__ import annotations

from statistics import fmean

import torch
from torch import Tensor

from swapformer.model import taps
from swapformer.model.context import Context
from swapformer.model.tokens import Tokens
from swapformer.model.topology import Topology
from swapformer.probes.analysis import head_similarity, mean_over_pairs
from swapformer.probes.base import Finding, Probe, validation
from swapformer.ranges import Count
from swapformer.results.shapes import Matrix, Profile, Shape
from swapformer.task.base import Task
from swapformer.training.inputs import model_inputs

WEIGHTS = "*.hook_pattern"
"""The places where the attentions of every stack show their weights."""


class HeadSimilarity(Probe):
    """Mean cosine similarity between the attention maps of two heads of a layer, averaged over layers.

    See `analysis.head_similarity`. The metric is `probe/head_similarity`; a model with one head in every layer has
    none. The shapes are the means by layer (`layers`) and the matrix of each layer (`heads/layer 1` and so on).

    Args:
        batches: validation batches at the training length.
    """

    def __init__(self, *, batches: Count) -> None:
        self.batches = batches

    def unsuited(self, model: Topology, task: Task) -> str | None:
        if taps.missing(model, WEIGHTS) is None:
            return None
        return (
            "head_similarity compares attention weights, which no attention of this model has; use "
            "model/attention=mha, or leave out probes=head_similarity."
        )

    def measure(self, model: Topology, task: Task) -> Finding:
        found: dict[str, list[tuple[Tensor, int]]] = {}
        for batch in validation(model, task, self.batches):
            ids, tokens, source_ids, source_tokens = model_inputs(batch)
            with taps.record(model, WEIGHTS) as seen:
                model(ids, tokens, source_ids, source_tokens)
            for name, weights in seen.items():
                counted = _counted(model, name, weights, tokens, source_tokens)
                found.setdefault(name, []).append(head_similarity(weights.double(), counted))
        columns = [zip(*sums, strict=True) for sums in found.values()]
        layers = [sum(matrices, torch.zeros(())) / sum(counts) for matrices, counts in columns]
        means = [mean_over_pairs(matrix) for matrix in layers]
        present = [mean for mean in means if mean is not None]
        metrics = {"probe/head_similarity": fmean(present)} if present else {}
        shapes: dict[str, Shape] = {
            f"heads/layer {index}": _matrix(matrix) for index, matrix in enumerate(layers, 1) if len(matrix) > 1
        }
        if present:
            names = [str(index) for index in range(1, len(means) + 1)]
            shapes["layers"] = Profile(
                "How alike heads look",
                "Mean cosine similarity between the attention maps of two heads of a layer: 1 where all look alike.",
                "head similarity", "", names, ["end"], [means],
            )  # fmt: skip
        return Finding(metrics, shapes)


def _counted(model: Topology, name: str, weights: Tensor, tokens: Tokens, source: Tokens | None) -> Tensor:
    """The real queries of an attention that may attend to several keys, [B, Q]."""
    stack, layer, place = name.split(".")[:3]
    own = source if stack == "encoder" and source is not None else tokens
    real = torch.ones_like(weights[:, 0, :, 0], dtype=torch.bool) if own.padding is None else ~own.padding
    if place != "attn":
        return real if weights.shape[-1] > 1 else ~torch.ones_like(real)
    layers = model.get_submodule("encoder.layers" if stack == "encoder" else "stack.layers")
    pattern = getattr(layers.get_submodule(layer).attention, "pattern", None)
    allowed = None if pattern is None else Context(own, own).mask(pattern)
    return real if allowed is None else real & (allowed.sum(-1).amax(1) > 1)


def _matrix(similarity_HH: Tensor) -> Matrix:
    heads = [f"head {head}" for head in range(1, len(similarity_HH) + 1)]
    return Matrix(
        "Which heads look alike",
        "Cosine similarity between the attention maps of every two heads of a layer.",
        heads, heads, similarity_HH.tolist(), 0.0, 1.0, per_seed=True,
    )  # fmt: skip
