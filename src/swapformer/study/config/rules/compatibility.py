"""The parts that go together: checked on the composed configuration, before anything is trained."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from hydra.errors import InstantiationException
from torch import nn

from swapformer.errors import UsageError
from swapformer.measure.base import Measurement
from swapformer.model.init.base import deviation
from swapformer.model.layers import origin_of
from swapformer.model.plan import LayerPlan, ModelPlan
from swapformer.model.topology import Topology
from swapformer.probes.base import make_probe
from swapformer.study.config import budget
from swapformer.study.config.cost import task_of
from swapformer.study.config.rules import probes, scaling, settings, stack, trainer, whole_model
from swapformer.targets import find, make
from swapformer.task.base import Task
from swapformer.training.assemble import build_plan, factory
from swapformer.training.nodes import ranks_of
from swapformer.training.optimiser import freeze, make_optimiser
from swapformer.training.schedule import Schedule
from swapformer.training.warm_start import match_weights
from swapformer.training.weights import summarise_weights


def check(config: Mapping[str, Any], task: Task, like: Mapping[str, Any] | None = None, trained: bool = False) -> None:
    """Refuse a configuration that cannot work; `like` and `trained` as for `problems`.

    The model, the schedule and the optimiser are made without memory, so that what a part says of its own settings, and
    what it states as a fact, is all that the rules need.

    Raises:
        UsageError: naming both sides and what would work.
    """
    if found := problems(config, task, like, trained):
        raise UsageError(" ".join(found))


def problems(
    config: Mapping[str, Any], task: Task, like: Mapping[str, Any] | None = None, trained: bool = False
) -> list[str]:
    """The reasons why a configuration cannot work, each once; what a part raises ends the search.

    Args:
        config: as it was composed.
        task: that it names.
        like: a configuration without problems. Where only the learning rate is another, the model is not made again.
        trained: whether it has trained before, so that its optimiser can be made: the first one takes a second.
    """
    first = (settings.of_keys, settings.of_types, scaling.sizes, trainer.settings, trainer.callbacks, probes.moments)
    for rules in first:
        if found := list(rules(config)):
            return found
    try:
        with torch.device("meta"):
            if not trained:
                _make_optimiser(json.dumps([config["schedule"], config["optim"]]))
            if (short := budget.too_short(config)) is not None:
                return [short]
            if (crowded := task.crowded_batch()) is not None:
                return [crowded]
            if like is not None and _without_rates(config) == _without_rates(like):
                return []
            plan = build_plan(config, task.interface)
            topology = _target(config["model"]["topology"])
            if not topology.has_slots:
                if not (found := list(whole_model.own(config, task, plan))):
                    found = list(_made(config, task, factory(config["model"]["topology"])(plan)))
                return found
            if found := list(dict.fromkeys(whole_model.sources(topology, plan))):
                return found
            predicts = not config["measure"]  # what is measured alone learns nothing from what it sees
            found = list(dict.fromkeys(whole_model.futures(topology, plan, task, config["allow"]))) if predicts else []
            for layers in plan.stacks:
                try:
                    found += whole_model.placed(_of_layers(layers, config, task), layers, plan, topology)
                except ValueError as error:
                    return found or list(whole_model.placed([str(error)], layers, plan, topology))
            unused = whole_model.unused(config["model"], plan)
            model = factory(config["model"]["topology"])(plan)
            found += [*whole_model.depth(plan), *_topology(config, plan, task, model), *unused]
            if not found:
                found += [*_made(config, task, model), *whole_model.leaks(config, task)]
    except InstantiationException as error:
        return [_of_a_part(error.__cause__ or error)]
    except (ValueError, TypeError, RuntimeError) as error:
        return found or [_of_a_part(error)]
    except SystemExit as error:
        return [f"a part must raise an error where it cannot go on, but one called sys.exit({error.code!r})."]
    return list(dict.fromkeys(found))


def _without_rates(config: Mapping[str, Any]) -> dict[str, Any]:
    """A configuration without the rate of its steps, which no rule about the model may ask for."""
    return {**config, "optim": {**config["optim"], "lr": None}, "schedule": None}


def _of_a_part(error: BaseException) -> str:
    """The first line of what a part raised; of a constructor that takes other arguments, what it must take."""
    text = str(error).split("\n")[0]
    if found := re.match(r"([\w.]+)\.__init__\(\) got an unexpected keyword argument '(\w+)'", text):
        return (
            f"{found[1]}.__init__ must take {found[2]!r}, which its slot or its configuration passes; add it, or "
            "if it is a setting, choose the part by an option file that has only its own."
        )
    if found := re.match(r"([\w.]+)\.__init__\(\) takes \d+ positional argument", text):
        return (
            f"{found[1]}.__init__ must take what its slot passes to every part, as the slot's base class says: {text}."
        )
    return text


def _of_layers(layers: Sequence[LayerPlan], config: Mapping[str, Any], task: Task) -> Iterator[str]:
    """The impossible demands on the layers of one stack."""
    for layer in layers:
        yield from stack.layer_rules(layer, task)
    yield from stack.devices(layers, config["trainer"]["accelerator"])
    yield from trainer.parts(config["trainer"], layers)
    for rule in (stack.embeddings, stack.streams, stack.updates, stack.ends, stack.values):
        yield from rule(layers)
    yield from stack.positions(layers, task)


@lru_cache(maxsize=256)
def _make_optimiser(nodes: str) -> None:
    """Make schedule and optimiser, whose settings are JSON, to hear their complaints; what is fine is asked once."""
    schedule, optim = json.loads(nodes)
    make(schedule, Schedule)
    make_optimiser(optim)([nn.Parameter(torch.zeros(1, device="cpu"))])


def _topology(config: Mapping[str, Any], plan: ModelPlan, task: Task, model: Topology) -> Iterator[str]:
    node = config["model"]["topology"]
    yield from whole_model.exchange(_target(node), plan, task, config["model"]["encoder"], model.reads_ahead)
    if not config["measure"]:  # what is measured alone learns nothing from what it sees
        yield from whole_model.lookahead(model, task, config["allow"])
    init = factory(config["model"]["init"])(plan.dims)
    origins = [origin_of(name, parameter) for name, parameter in model.named_parameters()]
    starts = [(origin.role, deviation(init, origin)) for origin in origins]
    silent = all(std == 0 for role, std in starts if role.ends_branch)
    layers = [layer for each in plan.stacks for layer in each]
    yield from whole_model.initialisation(init, layers, _target(node), node, silent)
    yield from scaling.scaling(config, plan, model)


def _made(config: Mapping[str, Any], task: Task, model: Topology) -> Iterator[str]:
    """The demands on a model that can be made: of probes, of a measurement, and of the weights that it starts from."""
    yield from _probes(config, task, model)
    yield from _measurement(config, task, model)
    _start(config, task, model)


def _start(config: Mapping[str, Any], task: Task, model: Topology) -> None:
    """The weights that are loaded, start fresh or are frozen: refused unless it fits the model, which it freezes."""
    freeze(model, config["optim"])
    if config["init_from"] is not None:
        match_weights(model, summarise_weights(Path(config["init_from"]["path"])), task, config)
    elif config["init_fresh"]:
        raise UsageError("`init_fresh` is about the weights of `init_from`, which is null; set it, or leave both out.")


def _probes(config: Mapping[str, Any], task: Task, model: Topology) -> Iterator[str]:
    """Probes that could measure nothing."""
    with torch.device("cpu"):
        for name, node in config["probes"].items():
            probe = make_probe(node, config)
            for change, changed in probe.variants().items():
                found = problems(changed, task_of(changed))
                yield from (f"with the change {change} of probes.{name}: {each}" for each in found)
            if problem := probe.unsuited(model, task):
                yield problem


def _measurement(config: Mapping[str, Any], task: Task, model: Topology) -> Iterator[str]:
    """A measurement that could find nothing, or would be looked at by probes."""
    if not config["measure"]:
        return
    if config["probes"]:
        yield (
            f"a measurement trains nothing and keeps no model, so probes={', '.join(config['probes'])} would have none "
            "to look at; use measure=none with budget.steps=0, or leave the probes out."
        )
    if (count := ranks_of(config["trainer"])) > 1:
        yield f"one device is measured, but the trial has {count}; use trainer.devices=1 and trainer.nodes=1."
    measurement, trainer = make(config["measure"], Measurement), config["trainer"]
    if trainer["accumulate_grad_batches"] > 1:
        yield "a measurement takes a batch in one part; use trainer.accumulate_grad_batches=1."
    for key in ("compile", "gradient_checkpointing"):
        if trainer[key] and not measurement.trains:
            yield f"trainer.{key} acts on training steps, which measure=step takes; leave it out."
    with torch.device("cpu"):
        if problem := measurement.unsuited(model, task):
            yield problem


def _target(node: Mapping[str, Any]) -> type[Topology]:
    return find(node["_target_"])
