"""Probe of the output's change: how far the output moves when every weight of the layers moves a little."""

from __future__ import annotations

import torch
from torch import Tensor

from swapformer.model.topology import Topology
from swapformer.probes.base import Finding, Probe
from swapformer.probes.gradients import named_layers
from swapformer.random import stream
from swapformer.ranges import Count, Positive
from swapformer.task.base import Batch, Task
from swapformer.training.data import EvaluationStream, drawn_position_range
from swapformer.training.inputs import model_inputs


class OutputChange(Probe):
    """Relative change of the main answer when each matrix of the layers moves by a small random step.

    W′ = W + δ · rms(W) · z with z ~ N(0, 1), for all matrices of all layers at once; embeddings, the readout, gains and
    biases stay. With y and y′ the answers (logits) of real tokens, `probe/output_change` is
    (Σ (y′ − y)² / Σ y²)^½ / δ, the mean over the draws of z: the change of the output in per cent for a change of the
    weights of one per cent. The weights are restored. Liu et al. 2020, arXiv:2004.08249, theorem 2, derive that the
    variance of the change grows with the number N of layers as N behind post-norm, and as log N behind pre-norm; an
    Adam step moves each weight by the learning rate, however small its gradient is.

    An output of zeros (Fixup at the start) has no relative change, and the metric is left out.

    Args:
        size: δ, small enough that the change is in proportion to it.
        draws: of z.
    """

    def __init__(self, *, size: Positive, draws: Count) -> None:
        self.size, self.draws = size, draws

    def measure(self, model: Topology, task: Task) -> Finding:
        source = next(item for item in task.evaluation("val") if item.name == "")
        batch = next(iter(EvaluationStream(source, 1, drawn_position_range(model))))
        weights = {
            f"{name} {own}": weight
            for name, layer in named_layers(model)
            for own, weight in layer.named_parameters()
            if weight.dim() > 1
        }
        before = {name: weight.detach().clone() for name, weight in weights.items()}
        answer = _answer(model, batch)
        changes = []
        for draw in range(self.draws):
            for name, weight in weights.items():
                noise = torch.randn(weight.shape, generator=stream("output_change", draw, name), dtype=torch.float32)
                weight.data.add_(self.size * weight.square().mean().sqrt() * noise.to(weight))
            changes.append(float((_answer(model, batch) - answer).norm()))
            for name, weight in weights.items():
                weight.data.copy_(before[name])
        size = float(answer.norm())
        return Finding({"probe/output_change": sum(changes) / len(changes) / size / self.size} if size else {}, {})


def _answer(model: Topology, batch: Batch) -> Tensor:
    """The main answers of the tokens that are no padding, float64."""
    answer = model(*model_inputs(batch)).double()
    return answer if batch.padding is None or answer.dim() < 3 else answer[~batch.padding]
