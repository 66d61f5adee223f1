"""How alike the heads of a layer look."""

from __future__ import annotations

from statistics import fmean

import torch
from torch import Tensor, nn

from swapformer.analysis.heads import head_similarity, mean_over_pairs
from swapformer.probes.base import Finding, Probe, watch_attention
from swapformer.task.base import Task
from swapformer.training.data import EvaluationStream, positions_drawn_from
from swapformer.training.module import tokens_of


class HeadSimilarity(Probe):
    """Mean cosine similarity between the attention maps of two heads of a layer, averaged over layers.

    See `swapformer.analysis.heads.head_similarity`. The metric is `probe/head_similarity`; a model with one head in
    every layer has none. The data holds the matrix of each layer.

    Args:
        batches: validation batches at the training length.
    """

    def __init__(self, *, batches: int) -> None:
        self.batches = batches

    def measure(self, model: nn.Module, task: Task) -> Finding:
        source = next(item for item in task.evaluation("val") if item.name == "")
        matrices: dict[int, list[Tensor]] = {}

        def see(layer: int, weights: Tensor) -> None:
            matrices.setdefault(layer, []).append(head_similarity(weights.double()))

        with watch_attention(model, see):
            for batch in EvaluationStream(source, self.batches, positions_drawn_from(model)):
                model(batch.inputs, tokens_of(batch))
        layers = [torch.stack(found).mean(dim=0) for _, found in sorted(matrices.items())]
        means = [mean_over_pairs(matrix) for matrix in layers]
        present = [mean for mean in means if mean is not None]
        metrics = {"probe/head_similarity": fmean(present)} if present else {}
        return Finding(metrics, {"layers": [matrix.tolist() for matrix in layers], "means": means})
