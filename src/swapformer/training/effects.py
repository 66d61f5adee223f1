"""What the settings of a trial do to its training, observed before it runs.

Two configurations with equal effects train the same model: their differences are settings that do nothing here. How a
trial is computed (device, precision, kernel) is left out, so that everything can be observed on the CPU.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields
from itertools import islice
from typing import Any

import torch
from torch import Tensor

from swapformer.model.layers import origin_of
from swapformer.model.topology import Topology
from swapformer.random import stream
from swapformer.targets import make
from swapformer.task.base import Batch, Sequences, Task, target_mask
from swapformer.training.assemble import Config, build_model, build_plan, factory
from swapformer.training.data import BatchShare, EvaluationStream, TrainingStream, cut, drawn_position_range
from swapformer.training.module import TrialModule, model_inputs
from swapformer.training.optimiser import OURS, freeze, parameter_groups
from swapformer.training.schedule import Schedule
from swapformer.training.warm_start import load_initial_weights

COMPUTATION = ("fused", "foreach", "capturable")
"""Settings of optimisers that say how a step is computed, and not which."""
AUTO = {"_target_": "swapformer.model.kernel.Auto", "_partial_": True, "_convert_": "all"}
NOISE = (0.1, 0.03, 0.3, 1.0)
"""Standard deviations of the noise on weights: branches that start at zero count too, and bounds are reached."""
FEW_TOKENS, MANY_TOKENS = 512, 4096
"""Tokens of a batch that are observed first, and before two configurations are called equal."""
STEPS = 64
"""Training batches that are compared before two configurations are called equal."""


def stated(config: Config, task: Task) -> str:
    """The settings that act by themselves, and the learning rate of every step as a share of its peak."""
    steps = config["budget"]["steps"]
    schedule = make(config["schedule"], Schedule)
    nodes = [config[key] for key in ("data", "eval", "divergence", "log_every", "init_fresh")]
    rates = [schedule.factor(step, steps) for step in range(steps)]
    return _digest(nodes, config["trainer"]["gradient_clip_val"], rates)


def updates(config: Config, task: Task) -> str:
    """The parameters by name, shape and role, and how the optimiser treats each."""
    with torch.device("meta"):
        model: Topology = factory(config["model"]["topology"])(build_plan(config, task.interface))
    freeze(model, config["optim"])
    parameters = dict(model.named_parameters())
    names = {parameter: name for name, parameter in parameters.items()}
    shapes = {name: (tuple(held.shape), str(origin_of(name, held).role)) for name, held in parameters.items()}
    groups = [
        {**group, "params": sorted(names[each] for each in group["params"])}
        for group in parameter_groups(model, config["optim"])
    ]
    left = (*OURS, *COMPUTATION, "weight_decay")
    return _digest(shapes, groups, {key: value for key, value in config["optim"].items() if key not in left})


def first_look(config: Config, task: Task) -> str:
    """The start of every weight, and what the model does with a few sequences in training and in evaluation."""
    return _observed(config, task, FEW_TOKENS, NOISE[:1])


def closer_look(config: Config, task: Task) -> str:
    """What it does with many sequences and several noises on its weights, and batches from all of the training."""
    steps = config["budget"]["steps"]
    chosen = sorted({step * (steps - 1) // (STEPS - 1) for step in range(STEPS)})
    batches = [_content(task.train_batch(config["data_seed"], step)) for step in chosen]
    return _digest(batches, _observed(config, task, MANY_TOKENS, NOISE))


STAGES: tuple[Callable[[Config, Task], str], ...] = (stated, updates, first_look, closer_look)
"""Effects as hashes, the cheap ones first: the later ones need to be asked where all before are equal alone."""


def _observed(config: Config, task: Task, tokens: int, noises: tuple[float, ...]) -> str:
    config = {**config, "model": _with_one_kernel(config["model"]), "trainer": {**config["trainer"], "compile": False}}
    digest = hashlib.sha256()
    with _one_thread(), torch.random.fork_rng(devices=[]):
        model = build_model(config, task.interface)
        freeze(model, config["optim"])
        if config["init_from"] is not None:
            load_initial_weights(model, task, config)
        module = TrialModule(model, task, config)
        for held in (_tensors(model), *(found for noise in noises for found in _behaviour(module, tokens, noise))):
            digest.update(_digest(held).encode())
    return digest.hexdigest()


def _tensors(model: Topology) -> dict[str, Tensor]:
    return {name: parameter.detach() for name, parameter in model.named_parameters()}


def _behaviour(module: TrialModule, tokens: int, noise: float) -> Iterator[Any]:
    """What a model with noise on its weights sees, answers and learns."""
    model, task, config = module.model, module.task, module.config
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter += noise * torch.randn(parameter.shape, generator=stream("effects", name, noise))
    drawn_from = drawn_position_range(model)
    model.train()
    model.zero_grad()
    (share,) = TrainingStream(task, config["data_seed"], 0, 1, 1, drawn_from)
    batch = _first(share.batch, tokens)
    targets = {name: max(int(target_mask(target).sum()), 1) for name, target in batch.answers.items()}
    module.training_step(BatchShare(batch, targets, batch.num_positions), 0).backward()  # type: ignore[no-untyped-call]
    gradients = {name: parameter.grad for name, parameter in model.named_parameters()}
    yield _content(batch), module.loss_share, gradients
    model.eval()
    for name, evaluated in module.evaluations:
        for found in islice(EvaluationStream(evaluated, 1, drawn_from), 1):
            batch = _first(found, tokens)
            with torch.no_grad():
                yield name, evaluated.name, _content(batch), model.answers(*model_inputs(batch))


def _first(batch: Batch, tokens: int) -> Batch:
    """The first sequences of a batch that together have no more tokens, one at least."""
    rows, length = batch.inputs.shape[:2]
    return cut(batch, rows, 0, max(tokens // length, 1))  # type: ignore[no-any-return]


def _content(sequences: Sequences) -> dict[str, Any]:
    """All that sequences hold, by name."""
    held = {field.name: getattr(sequences, field.name) for field in fields(sequences)}
    plain = {name: dict(value) if isinstance(value, Mapping) else value for name, value in held.items()}
    return {name: _content(value) if isinstance(value, Sequences) else value for name, value in plain.items()}


def _with_one_kernel(model: Config) -> dict[str, Any]:
    """A `model` node of which all layers take the fastest kernel: each kernel computes the same."""
    own = {"kernel": AUTO, "layers": [_with(layer) for layer in model["layers"]]}
    encoder = {**model["encoder"], "layers": [_with(layer) for layer in model["encoder"]["layers"]]}
    return {**model, **own, "encoder": encoder}


def _with(layer: Config) -> dict[str, Any]:
    return {slot: AUTO if slot == "kernel" else node for slot, node in layer.items()}


@contextmanager
def _one_thread() -> Iterator[None]:
    """Compute in one thread, in which sums have one order."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _digest(*held: Any) -> str:
    """sha256 of plain values and tensors, bit by bit."""
    digest = hashlib.sha256()

    def tensor(value: object) -> str:
        assert isinstance(value, Tensor), f"{type(value).__name__} cannot be compared"
        plain = value.detach().contiguous()
        digest.update(plain.flatten().view(torch.uint8).numpy().tobytes())
        return f"{plain.dtype} {list(plain.shape)}"

    digest.update(json.dumps(held, sort_keys=True, default=tensor).encode())
    return digest.hexdigest()
