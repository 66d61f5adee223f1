"""The effects of a trial's settings on its training, observed before it runs.

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
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from swapformer.model.layers import origin_of
from swapformer.model.topology import Topology
from swapformer.random import stream
from swapformer.targets import make
from swapformer.task.base import Batch, Sequences, Task, cut
from swapformer.training.assemble import Config, build_model, build_plan, factory, scaling
from swapformer.training.data import BatchShare, EvaluationStream, TrainingStream, drawn_position_range
from swapformer.training.inputs import model_inputs
from swapformer.training.optimiser import OURS, freeze, parameter_groups
from swapformer.training.schedule import Schedule
from swapformer.training.warm_start import load_initial_weights

if TYPE_CHECKING:
    from swapformer.training.module import TrialModule

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
    nodes = [config[key] for key in ("data", "eval", "divergence", "log_every", "init_fresh", "probes")]
    nodes.append(config.get("callbacks", {}))
    rates = [schedule.factor(step, steps) for step in range(steps)]
    trainer = config["trainer"]
    limit = trainer["gradient_clip_val"]
    clipping = (limit, trainer.get("gradient_clip_algorithm", "norm")) if limit else None
    return _digest(nodes, clipping, rates)


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
        for group in parameter_groups(model, config["optim"], scaling(config, task.interface))
    ]
    left = (*OURS, *COMPUTATION, "weight_decay")
    return _digest(shapes, groups, {key: value for key, value in config["optim"].items() if key not in left})


def first_look(config: Config, task: Task) -> str:
    """The loss of a few sequences in training, with noise on the weights."""
    with _module(config, task) as module:
        _disturb(module.model, NOISE[0])
        with torch.no_grad():
            _train_on(module, FEW_TOKENS)
        return _digest(module.loss_share)


def closer_look(config: Config, task: Task) -> str:
    """The start of every weight, what the model does with many sequences and several noises, and other batches."""
    steps = config["budget"]["steps"]
    chosen = sorted({step * (steps - 1) // (STEPS - 1) for step in range(STEPS)}) if steps else []
    batches = [_digest(_content(task.train_batch(config["data_seed"], step))) for step in chosen]
    with _module(config, task) as module:
        starts = _digest({name: parameter.detach() for name, parameter in module.model.named_parameters()})
        behaviour = [_digest(held) for noise in NOISE for held in _behaviour(module, noise)]
    return _digest(batches, starts, behaviour)


STAGES: tuple[Callable[[Config, Task], str], ...] = (stated, updates, first_look, closer_look)
"""Effects as hashes, the cheap ones first: the later ones need to be asked where all before are equal alone."""


@contextmanager
def _module(config: Config, task: Task) -> Iterator[TrialModule]:
    """The model and task that would be trained, on the CPU, in one thread, in which sums have one order."""
    from swapformer.training.module import TrialModule  # late: it brings Lightning

    config = {**config, "model": _with_one_kernel(config["model"]), "trainer": {**config["trainer"], "compile": False}}
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with torch.random.fork_rng(devices=[]):
            model = build_model(config, task.interface)
            freeze(model, config["optim"])
            if config["init_from"] is not None:
                load_initial_weights(model, task, config)
            yield TrialModule(model, task, config)
    finally:
        torch.set_num_threads(threads)


def _disturb(model: Topology, noise: float) -> None:
    """Add noise of this standard deviation to all weights, the same to those of one name and shape."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.add_(noise * torch.randn(parameter.shape, generator=stream("effects", name, noise)))


def _train_on(module: TrialModule, tokens: int) -> tuple[Batch, Tensor]:
    """The first sequences of the first training batch, and the loss of a step on them."""
    module.model.train()
    seed, drawn_from = module.config["data_seed"], drawn_position_range(module.model)
    (share,) = TrainingStream(module.task, seed, 0, 1, 1, drawn_from)
    batch = _first(share.batch, tokens)
    return batch, module.training_step(BatchShare.whole(batch), 0)


def _behaviour(module: TrialModule, noise: float) -> Iterator[Any]:
    """The inputs, gradients and answers of a model with noise on its weights."""
    model = module.model
    _disturb(model, noise)
    model.zero_grad()
    batch, loss = _train_on(module, MANY_TOKENS)
    loss.backward()  # type: ignore[no-untyped-call]
    yield _content(batch), module.loss_share, {name: each.grad for name, each in model.named_parameters()}
    model.eval()
    for split, evaluated in module.evaluations:
        for found in islice(EvaluationStream(evaluated, 1, drawn_position_range(model)), 1):
            batch = _first(found, MANY_TOKENS)
            with torch.no_grad():
                yield split, evaluated.name, _content(batch), model.answers(*model_inputs(batch))


def _first(batch: Batch, tokens: int) -> Batch:
    """The first sequences of a batch that together have no more tokens, one at least."""
    rows, length = batch.inputs.shape[:2]
    return cut(batch, rows, 0, max(tokens // length, 1))


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
