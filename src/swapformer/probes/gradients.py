"""Gradients that a probe can read: those of the training loss on one fixed batch, in the model's own dtype."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import torch
from torch import nn

from swapformer.model.layers import origin_of
from swapformer.model.stack import Layer, stacks
from swapformer.model.topology import Topology
from swapformer.probes.base import GradientBatch, validation
from swapformer.task.base import Task
from swapformer.training.assemble import Config
from swapformer.training.data import BatchShare, TrainingStream, drawn_position_range
from swapformer.training.optimiser import freeze


@contextmanager
def training_gradients(model: Topology, task: Task, config: Config, batch: GradientBatch) -> Iterator[None]:
    """Within, each trained weight of a model has in `.grad` the gradient of the training loss on one fixed batch.

    The loss is that of a training step, with its auxiliary losses, in training mode, with the randomness of the first
    step, not clipped and without autocast. For `train` and a fresh model it is the gradient of the first step; for
    `val` the batch is the first of the validation data at the trained length. Weights that are frozen have none.
    Afterwards the model has no gradients, its buffers are what they were, and it is in evaluation mode.
    """
    from swapformer.training.module import TrialModule  # late: it brings Lightning

    buffers = {name: buffer.clone() for name, buffer in model.named_buffers()}
    trained = {name: parameter.requires_grad for name, parameter in model.named_parameters()}
    whole = {**config["trainer"], "compile": False, "accumulate_grad_batches": 1}
    module = TrialModule(model, task, {**config, "trainer": whole})
    freeze(model, config["optim"])
    model.zero_grad(set_to_none=True)
    model.train()
    try:
        with torch.enable_grad():
            loss = module.training_step(_share(model, task, config["data_seed"], batch), 0)
            loss.backward()  # type: ignore[no-untyped-call]
        model.eval()
        yield
    finally:
        model.zero_grad(set_to_none=True)
        model.eval()
        with torch.no_grad():
            for name, buffer in model.named_buffers():
                buffer.copy_(buffers[name])
        for name, parameter in model.named_parameters():
            parameter.requires_grad_(trained[name])


def _share(model: Topology, task: Task, seed: int, which: GradientBatch) -> BatchShare:
    """The fixed batch, with the number of its targets."""
    if which == "train":
        return next(iter(TrainingStream(task, seed, 0, 1, 1, drawn_position_range(model))))
    return BatchShare.whole(next(iter(validation(model, task, 1))))


def matrices(part: nn.Module) -> Iterator[tuple[str, nn.Parameter]]:
    """The matrices of a part, by name; biases of experts and taps of convolutions have two axes too, and are none."""
    for name, weight in part.named_parameters():
        if weight.dim() > 1 and origin_of(name, weight).role.is_matrix:
            yield name, weight


def gradient_norm(parameters: Iterable[nn.Parameter]) -> float:
    """Euclidean norm of the gradients of some parameters, taken together: (Σ g²)^½, summed in float64.

    A parameter without a gradient counts as zero.
    """
    squares = [float(each.grad.double().square().sum()) for each in parameters if each.grad is not None]
    return math.sqrt(sum(squares))


def named_layers(model: nn.Module) -> Iterator[tuple[str, Layer]]:
    """Every layer of a model with its name, from the first to the last of each stack."""
    found = stacks(model)
    for stack_name, stack in found.items():
        for number, layer in enumerate(stack.layers, 1):
            assert isinstance(layer, Layer)
            yield (str(number) if len(found) == 1 else f"{stack_name} {number}"), layer
