"""The law of folding: trials that are computed as one batch train as they do alone."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import torch
from torch import nn

from swapformer.conformance.subject import VOCABULARY, Subject, ids, require
from swapformer.model.topology import Topology
from swapformer.random import stream
from swapformer.task.base import Batch, Sequences
from swapformer.training.data import BatchShare, drawn_position_range, with_drawn_positions
from swapformer.training.folded_step import folded_step, unfoldable
from swapformer.training.inputs import model_inputs
from swapformer.training.module import TrialModule

STEPS = 4
"""Steps of the trainings that are compared; `make evidence` takes 20."""
CLOSE = 1e-9
"""Largest difference between their weights, in float64."""
SHORT = 8
"""Tokens of a sequence."""
_TRIALS, _RATE, _NORM = 2, 0.05, 1.0


def folding_changes_nothing(subject: Subject, steps: int = STEPS) -> str | None:
    """Trials of different seeds that are trained as one batch end with the weights that each has when trained alone."""
    if subject.slot == "init":
        return "weights are drawn before anything is folded"
    if reasons := list(unfoldable(subject.config["model"])):
        return reasons[0]
    small = subject.with_model(num_layers=min(2, subject.config["model"]["num_layers"]), dropout=0.0)
    alone, together = (list(map(noisy_model, [small] * _TRIALS, range(_TRIALS))) for _ in range(2))
    for step in range(steps):
        for number, model in enumerate(alone):
            _train_alone(module_of(model), share_of(model, number, step), step)
        _train_together([module_of(model) for model in together], step)
        gap = max(map(_distance, alone, together))
        require(
            gap < CLOSE,
            f"trials that are folded must train as they do alone, but after step {step + 1} their weights differ by "
            f"{gap:.2g}: compute each trial from its own weights and tokens, or state `folds = False`.",
        )
    return None


def noisy_model(subject: Subject, number: int) -> Topology:
    """The model of a trial with a seed of its own, and noise of its own on the weights."""
    model = Subject({**subject.config, "seed": number}, subject.slot).build().train()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = torch.randn(parameter.shape, generator=stream("fold", name, number), dtype=torch.float64)
            parameter.add_(0.2 * noise)
    return model


def module_of(model: Topology) -> TrialModule:
    """What trains a model, without a trial around it."""
    task: Any = SimpleNamespace(interface=model.interface)
    return TrialModule(model, task, {"trainer": {"compile": False, "accumulate_grad_batches": 1}, "seed": 0})


def share_of(model: Topology, number: int, step: int) -> BatchShare:
    """What a trial trains on at a step: tokens, with every channel that is read, and a source for who reads one."""
    inputs = ids(2, SHORT + 1, seed=100 * number + step)
    names = {*model.stack.tags, *(["segment"] if model.reads_segments else [])}
    tags = {name: torch.randint(2, (2, SHORT), generator=stream("tags", name, number, step)) for name in names}
    takes_source = model.reads_source and not model.reads_ahead
    source = Sequences(inputs=ids(2, SHORT // 2, seed=100 * number + step + 50)) if takes_source else None
    batch = Batch(inputs=inputs[:, :-1], targets=inputs[:, 1:] % VOCABULARY, tags=tags, source=source)
    return BatchShare(with_drawn_positions(batch, drawn_position_range(model), number, step), {"": 2 * SHORT}, 0)


def _train_alone(module: TrialModule, share: BatchShare, step: int) -> None:
    torch.manual_seed(step)
    _, loss = module.objective(share, model_inputs(share.batch))
    module.model.zero_grad()
    loss.backward()  # type: ignore[no-untyped-call]
    update(module.model)


def _train_together(modules: Sequence[TrialModule], step: int) -> None:
    shares = [share_of(module.model, number, step) for number, module in enumerate(modules)]
    for module, found in zip(modules, folded_step(modules, shares, [step] * len(modules)), strict=True):
        for parameter, gradient in zip(module.model.parameters(), found.gradients, strict=True):
            parameter.grad = gradient
        update(module.model)


def update(model: nn.Module) -> None:
    """A step of gradient descent on the clipped gradient of one trial."""
    nn.utils.clip_grad_norm_(model.parameters(), _NORM)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.grad is not None:
                parameter.sub_(_RATE * parameter.grad)


def _distance(one: nn.Module, other: nn.Module) -> float:
    """The largest difference between the weights of two models."""
    pairs = zip(one.parameters(), other.parameters(), strict=True)
    return max(float((mine - theirs).detach().abs().max()) for mine, theirs in pairs)
