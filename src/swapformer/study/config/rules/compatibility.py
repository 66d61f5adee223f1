"""Which parts go together: checked on the composed configuration, before anything is trained."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache, reduce
from operator import getitem
from pathlib import Path
from typing import Any

import torch
from hydra.errors import InstantiationException
from torch import nn

from swapformer.errors import UsageError, suggest
from swapformer.model.init.base import deviation
from swapformer.model.layers import origin_of
from swapformer.model.plan import LayerPlan, ModelPlan
from swapformer.model.topology import Topology
from swapformer.probes.base import Probe
from swapformer.study.config import budget
from swapformer.study.config.rules import stack, trainer, whole_model
from swapformer.targets import find, make
from swapformer.task.base import Task
from swapformer.training.assemble import SLOTS, build_plan, factory
from swapformer.training.optimiser import freeze, make_optimiser
from swapformer.training.schedule import Schedule
from swapformer.training.warm_start import match_weights
from swapformer.training.weights import summarise_weights

COUNTS = (
    *("budget.steps", "eval.every", "eval.batches", "eval.final_batches", "log_every", "checkpoint_every"),
    *("trainer.threads", "trainer.devices", "trainer.accumulate_grad_batches"),
    *("model.d_model", "model.num_layers", "model.num_heads", "model.max_len"),
)
WHOLE_NUMBERS = {"seed": 0, "data_seed": 0, **dict.fromkeys(COUNTS, 1)}
"""Keys that hold whole numbers, and the least of each."""

NUMBERS = {"divergence": 1.0, "trainer.gradient_clip_val": 0.0, "trainer.heartbeat": 2.0, "model.dropout": 0.0}
"""Keys that hold numbers, and the least of each."""

KEYS = {
    "": ("seed", "data_seed", "model", "task", "data", "budget", "eval", "optim", "schedule", "trainer", "probes",
         "logger", "divergence", "log_every", "checkpoint_every", "runs_dir", "allow", "init_from", "init_fresh"),
    "model": (*SLOTS, "d_model", "num_layers", "num_heads", "head_dim", "max_len", "dropout", "bias", "layers",
              "encoder"),
    "model.encoder": ("num_layers", "layers"),
    "budget": ("steps", "tokens", "flops"),
    "eval": ("every", "batches", "final_batches"),
    "trainer": ("accelerator", "devices", "strategy", "precision", "accumulate_grad_batches",
                "gradient_checkpointing", "compile", "gradient_clip_val", "deterministic", "threads", "heartbeat"),
}  # fmt: skip
"""What each node may hold: a key that nothing reads is an error."""

ALLOWANCES = ("future", "leftovers", "vocabulary")
"""What `allow` may list: combinations that are refused unless they are what a study is about."""


def check(config: Mapping[str, Any], task: Task) -> None:
    """Refuse a configuration that cannot work.

    The model, the schedule and the optimiser are made without memory, so that what a part says of its own settings, and
    what it states as a fact, is all that the rules need.

    Raises:
        UsageError: naming both sides and what would work.
    """
    if found := problems(config, task):
        raise UsageError(" ".join(found))


def problems(config: Mapping[str, Any], task: Task) -> list[str]:
    """Why a configuration cannot work, each reason once; what a part raises ends the search."""
    if found := [*_keys(config), *_numbers(config), *trainer.settings(config), *_training(config)]:
        return found
    try:
        with torch.device("meta"):
            _make_optimiser(json.dumps([config["schedule"], config["optim"]]))
            if (short := budget.too_short(config)) is not None:
                return [short]
            plan = build_plan(config, task.interface)
            topology = _target(config["model"]["topology"])
            if found := list(dict.fromkeys(whole_model.sources(topology, plan))):
                return found
            found = list(dict.fromkeys(whole_model.futures(topology, plan, task, config["allow"])))
            for layers in plan.stacks:
                try:
                    found += whole_model.placed(_of_layers(layers, config, task), layers, plan, topology)
                except ValueError as error:
                    return found or list(whole_model.placed([str(error)], layers, plan, topology))
            unused = whole_model.unused(config["model"], plan)
            found += [*whole_model.depth(plan), *_topology(config, plan, task), *unused]
            if not found:
                _start(config, plan, task)
                found += _probes(config, plan, task)
    except InstantiationException as error:
        return [str(error.__cause__ or error).split("\n")[0]]
    except (ValueError, TypeError, RuntimeError) as error:
        return found or [str(error)]
    return list(dict.fromkeys(found))


def _of_layers(layers: Sequence[LayerPlan], config: Mapping[str, Any], task: Task) -> Iterator[str]:
    """What the layers of one stack cannot do."""
    for layer in layers:
        yield from stack.layer_rules(layer, task)
    yield from stack.devices(layers, config["trainer"]["accelerator"])
    yield from trainer.parts(config["trainer"], layers)
    for rule in (stack.embeddings, stack.streams, stack.updates, stack.ends, stack.values):
        yield from rule(layers)
    yield from stack.positions(layers, task)


def _keys(config: Mapping[str, Any]) -> Iterator[str]:
    for node, known in KEYS.items():
        for key in reduce(getitem, node.split("."), config) if node else config:
            if key not in known:
                where = f"`{node}`" if node else "the configuration"
                yield f"{where} has no key {key!r}, so nothing would read it{suggest(str(key), known)}"
    if "_target_" in config["model"]["extension"]:
        found = config["model"]["extension"]["_target_"]
        yield (
            f"`model.extension` must hold extensions by name, but it is {found} itself; let the first line of its YAML "
            "be `# @package model.extension.NAME`."
        )
    for word in config["allow"]:
        if word not in ALLOWANCES:
            yield f"`allow` may list {', '.join(ALLOWANCES)}, but not {word!r}."


def _numbers(config: Mapping[str, Any]) -> Iterator[str]:
    for key, least in {**WHOLE_NUMBERS, **NUMBERS}.items():
        value: Any = reduce(getitem, key.split("."), config)
        kind, words = (int, "a whole number") if key in WHOLE_NUMBERS else ((int, float), "a number")
        if not isinstance(value, kind) or isinstance(value, bool) or value < least:
            yield f"`{key}` must be {words} of at least {least}, but it is {value!r}."


def _training(config: Mapping[str, Any]) -> Iterator[str]:
    optim = config["optim"]
    if not isinstance(optim.get("fused", False), bool):
        yield f"`optim.fused` must be true or false, but it is {optim['fused']!r}."
    if not isinstance(optim["lr"], int | float):
        yield f"`optim.lr` must be a number, but it is {optim['lr']!r}."
    if not isinstance(optim["layer_decay"], int | float) or not 0 < optim["layer_decay"] <= 1:
        yield f"`optim.layer_decay` must lie in (0, 1], but it is {optim['layer_decay']!r}."


@lru_cache(maxsize=256)
def _make_optimiser(settings: str) -> None:
    """What schedule and optimiser say of their settings, which are given as JSON; what is fine is asked once."""
    schedule, optim = json.loads(settings)
    make(schedule, Schedule)
    make_optimiser(optim)([nn.Parameter(torch.zeros(1, device="cpu"))])


def _topology(config: Mapping[str, Any], plan: ModelPlan, task: Task) -> Iterator[str]:
    node = config["model"]["topology"]
    yield from whole_model.exchange(_target(node), plan, task, config["model"]["encoder"])
    if _target(node).reads_source and not plan.encoder:
        return
    model: Topology = factory(node)(plan)
    init = factory(config["model"]["init"])(plan.dims)
    origins = [origin_of(name, parameter) for name, parameter in model.named_parameters()]
    starts = [(origin.role, deviation(init, origin)) for origin in origins]
    silent = all(std == 0 for role, std in starts if role.ends_branch)
    layers = [layer for each in plan.stacks for layer in each]
    yield from whole_model.initialisation(init, layers, _target(node), node, silent)


def _start(config: Mapping[str, Any], plan: ModelPlan, task: Task) -> None:
    """What is loaded, what starts fresh and what is frozen: refused unless it fits the model."""
    if config["optim"]["freeze"] == [] and config["init_from"] is None and not config["init_fresh"]:
        return
    model: Topology = factory(config["model"]["topology"])(plan)
    freeze(model, config["optim"])
    if config["init_from"] is not None:
        match_weights(model, summarise_weights(Path(config["init_from"]["path"])), task, config)
    elif config["init_fresh"]:
        raise UsageError("`init_fresh` is about the weights of `init_from`, which is null; set it, or leave both out.")


def _probes(config: Mapping[str, Any], plan: ModelPlan, task: Task) -> Iterator[str]:
    """Probes that could measure nothing when the training is over."""
    if not config["probes"]:
        return
    model: Topology = factory(config["model"]["topology"])(plan)
    with torch.device("cpu"):
        for node in config["probes"].values():
            if problem := make(node, Probe).unsuited(model, task):
                yield problem


def _target(node: Mapping[str, Any]) -> type[Topology]:
    return find(node["_target_"])
