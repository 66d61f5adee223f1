"""Probes of the output's change: how far the output moves when every weight of the layers moves a little."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from swapformer.model.topology import Topology
from swapformer.probes.base import Finding, GradientBatch, Probe, validation
from swapformer.probes.gradients import matrices, named_layers
from swapformer.random import stream
from swapformer.ranges import Count, Positive
from swapformer.task.base import Batch, Task
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
        weights, batch = _matrices(model), next(iter(validation(model, task, 1)))
        answer, changes = _answer(model, batch), []
        for draw in range(self.draws):
            with _restored(weights):
                for name, weight in weights.items():
                    noise = torch.randn(
                        weight.shape, generator=stream("output_change", draw, name), dtype=torch.float32
                    )
                    weight.data.add_(self.size * weight.square().mean().sqrt() * noise.to(weight))
                changes.append(float((_answer(model, batch) - answer).norm()))
        size = float(answer.norm())
        return Finding({"probe/output_change": sum(changes) / len(changes) / size / self.size} if size else {}, {})


class FirstStep(Probe):
    """Relative change of the main answer when each matrix of the layers takes Adam's first step.

    W′ = W − η · g / (|g| + 1e-8) by element, with g = ∂L/∂W on one fixed batch (Kingma & Ba 2015, arXiv:1412.6980,
    algorithm 1 at t = 1): every weight moves by the learning rate η, however small its gradient is. Embeddings, the
    readout, gains and biases stay, and there is no clipping, warm-up or decay. With y and y′ the answers (logits) of
    real tokens of a batch of the validation, `probe/first_step/η` is (Σ (y′ − y)² / Σ y²)^½. The weights are restored.
    An output of zeros has no relative change, and the metrics are left out.

    Args:
        rates: η.
        batch: on which the loss is taken: `train`, the first batch of the training, or `val`, the first of validation.

    Raises:
        ValueError: without a rate.
    """

    gradients = True

    def __init__(self, *, rates: Sequence[Positive], batch: GradientBatch) -> None:
        self.rates, self.gradient_batch = rates, batch
        if not rates:
            raise ValueError("`rates` of first_step must list at least one number, but is empty; give [0.001].")

    @torch.no_grad()
    def measure(self, model: Topology, task: Task) -> Finding:
        weights, batch = _matrices(model), next(iter(validation(model, task, 1)))
        answer = _answer(model, batch)
        if not (size := float(answer.norm())):
            return Finding({}, {})
        metrics: dict[str, float] = {}
        for rate in self.rates:
            with _restored(weights):
                for weight in weights.values():
                    if (gradient := weight.grad) is not None:
                        weight.data.sub_(rate * gradient / (gradient.abs() + 1e-8))
                metrics[f"probe/first_step/{rate:g}"] = float((_answer(model, batch) - answer).norm()) / size
        return Finding(metrics, {})


def _matrices(model: Topology) -> dict[str, nn.Parameter]:
    """The matrices of all layers, by name."""
    return {f"{name} {own}": weight for name, layer in named_layers(model) for own, weight in matrices(layer)}


@contextmanager
def _restored(weights: dict[str, nn.Parameter]) -> Iterator[None]:
    """Afterwards the weights are what they were."""
    before = {name: weight.detach().clone() for name, weight in weights.items()}
    try:
        yield
    finally:
        for name, weight in weights.items():
            weight.data.copy_(before[name])


def _answer(model: Topology, batch: Batch) -> Tensor:
    """The main answers of the tokens that are no padding, float64."""
    answer = model(*model_inputs(batch)).double()
    return answer if batch.padding is None or answer.dim() < 3 else answer[~batch.padding]
