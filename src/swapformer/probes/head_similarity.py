"""Probe of head similarity: how alike the attention maps of the heads of a layer are."""

from __future__ import annotations

from statistics import fmean

import torch
from torch import Tensor

from swapformer.model.context import Context
from swapformer.model.topology import Topology
from swapformer.probes.analysis import head_similarity, mean_over_pairs
from swapformer.probes.base import Finding, Probe, watch_attention
from swapformer.ranges import Count
from swapformer.results.shapes import Matrix, Profile, Shape
from swapformer.task.base import Task
from swapformer.training.data import EvaluationStream, drawn_position_range
from swapformer.training.module import model_inputs


class HeadSimilarity(Probe):
    """Mean cosine similarity between the attention maps of two heads of a layer, averaged over layers.

    See `analysis.head_similarity`. The metric is `probe/head_similarity`; a model with one head in every layer has
    none. The shapes are the means by layer (`layers`) and the matrix of each layer (`heads/layer 1` and so on).

    Args:
        batches: validation batches at the training length.

    Raises:
        ValueError: if there are none.
    """

    def __init__(self, *, batches: Count) -> None:
        if batches < 1:
            raise ValueError(f"`batches` of head_similarity must be at least 1, but it is {batches}.")
        self.batches = batches

    def measure(self, model: Topology, task: Task) -> Finding:
        source = next(item for item in task.evaluation("val") if item.name == "")
        found: dict[int, list[tuple[Tensor, int]]] = {}

        def see(layer: int, weights: Tensor, context: Context) -> None:
            padding = context.query.padding
            found.setdefault(layer, []).append(head_similarity(weights.double(), None if padding is None else ~padding))

        with watch_attention(model, see):
            for batch in EvaluationStream(source, self.batches, drawn_position_range(model)):
                model(*model_inputs(batch))
        columns = [zip(*sums, strict=True) for _, sums in sorted(found.items())]
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


def _matrix(similarity_HH: Tensor) -> Matrix:
    heads = [f"head {head}" for head in range(1, len(similarity_HH) + 1)]
    return Matrix(
        "Which heads look alike",
        "Cosine similarity between the attention maps of every two heads of a layer.",
        heads, heads, similarity_HH.tolist(), 0.0, 1.0, per_seed=True,
    )  # fmt: skip
