"""Builds the task and the model of a resolved configuration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from hydra.errors import InstantiationException
from torch import nn

from swapformer.errors import UsageError, quote
from swapformer.interface import Interface
from swapformer.model.dims import Dims, Side, head_width
from swapformer.model.layers import origin_of
from swapformer.model.plan import LayerPlan, ModelPlan
from swapformer.model.topology import Topology
from swapformer.targets import find, make, require_known, require_whole
from swapformer.task.base import Task
from swapformer.training.scaling import Factors, factors

Config = Mapping[str, Any]

LAYER_SLOTS = (
    *("position", "attention", "extension", "score", "normaliser", "pattern", "kernel", "qk_norm"),
    *("norm", "placement", "residual", "block", "ffn", "activation"),
)
SLOTS = ("topology", "depth", "init", *LAYER_SLOTS)
LAYER_SIZES = ("num_heads", "head_dim", "dropout", "bias")

FULL = {"_target_": "swapformer.model.pattern.Full", "_partial_": True, "_convert_": "all"}
"""The pattern of an encoder that is read by a decoder, unless its layers say otherwise."""


def build_task(config: Config) -> Task:
    """The task of a trial: what is built of its configuration first.

    Raises:
        UsageError: if the configuration names classes of packages that are not allowed.
        ValueError: what the task says of its settings, without Hydra's words around it.
    """
    require_known(config)
    try:
        return make(config["task"], Task, "task")
    except SystemExit as error:
        raise UsageError(
            f"a task must raise an error where it cannot go on, but it called sys.exit({error.code!r})"
        ) from error
    except InstantiationException as error:
        raise (error.__cause__ if isinstance(error.__cause__, ValueError) else error) from None


def rebuild_task(config: Config) -> Task:
    """The task of a trial that has been named by its data before.

    Raises:
        UsageError: if the data are no longer those that it was named by, or cannot be read any more.
    """
    task = build_task(config)
    if task.fingerprint() != config["data"]:
        source = config["task"].get("source") or config["task"]
        what = quote(source["path"]) if source.get("path") else f"what {config['task']['_target_']} gives"
        raise UsageError(
            f"a trial's data must be what it was named by, but {what} has changed; put it back, or train again"
        )
    return task


def factory(node: Config) -> partial[Any]:
    """The object that Hydra's `instantiate` makes of a part's node, but faster; parts within it are factories too."""
    if not node.get("_partial_"):
        raise UsageError(
            f"a part's node needs `_partial_: true`, but that of {node['_target_']} lacks it; see its YAML"
        )
    settings = {str(key): _setting(value) for key, value in node.items() if not str(key).startswith("_")}
    found = find(node["_target_"])
    require_whole(found)
    return partial(found, **settings)


def _setting(value: Any) -> Any:
    """A setting in which every node of a part is a factory; a slot that holds several parts maps names to factories."""
    if isinstance(value, Mapping):
        return factory(value) if "_target_" in value else {key: _setting(held) for key, held in value.items()}
    return [_setting(held) for held in value] if isinstance(value, list) else value


def build_dims(model: Config, vocab_size: int) -> Dims:
    """The sizes that a `model` node states, with the width of a head worked out."""
    width = model["head_dim"]
    return Dims(
        d_model=model["d_model"],
        num_layers=model["num_layers"],
        num_heads=model["num_heads"],
        head_dim=head_width(model["d_model"], model["num_heads"]) if width is None else width,
        max_len=model["max_len"],
        vocab_size=vocab_size,
        dropout=model["dropout"],
        bias=model["bias"],
    )


def build_plan(config: Config, asked: Interface | int) -> ModelPlan:
    """One factory per slot and layer; layers that override nothing share theirs.

    `asked` is the task's interface, or the number of symbols of a language.
    """
    model, interface = config["model"], Interface(asked) if isinstance(asked, int) else asked
    topology: type[Topology] = find(model["topology"]["_target_"])
    dims = replace(build_dims(model, interface.vocab_size), side=topology.side)
    if not topology.reads_source:
        return ModelPlan(dims, _layers(model, dims, model["layers"]), interface, factory(model["depth"]))
    node = encoder_node(model)
    dims = replace(dims, encoder_layers=node["num_layers"], decoder_layers=dims.num_layers)
    encoder = _layers(node, replace(dims, num_layers=node["num_layers"], side=Side.ENCODER), node["layers"])
    return ModelPlan(dims, _layers(model, dims, model["layers"]), interface, factory(model["depth"]), encoder)


def encoder_node(model: Config) -> Config:
    """The `model` node as the encoder of an encoder-decoder has it."""
    own = model["encoder"]
    count = model["num_layers"] if own["num_layers"] is None else own["num_layers"]
    return {**model, "num_layers": count, "pattern": FULL, "layers": own["layers"]}


def _layers(model: Config, dims: Dims, overrides: Sequence[Config]) -> tuple[LayerPlan, ...]:
    """The plans of a stack's layers, which share what they can."""
    base = {slot: _setting(model[slot]) for slot in LAYER_SLOTS}
    shared: dict[Any, Any] = {}

    def layer(index: int, own: Config) -> LayerPlan:
        slots = {slot: _setting(own[slot]) if slot in own else base[slot] for slot in LAYER_SLOTS}
        sizes = {name: value for name, value in own.items() if name in LAYER_SIZES}
        stated = build_dims({**model, **sizes}, dims.vocab_size)
        changes = {name: getattr(stated, name) for name in LAYER_SIZES}
        return LayerPlan(replace(dims, **changes, layer=index), slots, shared)

    return tuple(layer(index, own) for index, own in enumerate(overrides or [{}] * dims.num_layers))


def build_model(config: Config, asked: Interface | int) -> Topology:
    """The model of a trial, its weights drawn from the trial's seed on the CPU; `asked` as for `build_plan`."""
    plan = build_plan(config, asked)
    model: Topology = factory(config["model"]["topology"])(plan)
    starts = {name: own.start for name, own in scaling(config, asked).items()}
    model.start(factory(config["model"]["init"])(plan.dims), config["seed"], starts)
    return model


def build_in_precision(config: Config, asked: Interface | int) -> Topology:
    """The model of `build_model` in the type that its weights train in: float64 with trainer.precision=64-true."""
    model = build_model(config, asked)
    return model.double() if config["trainer"]["precision"] == "64-true" else model


def scaling(config: Config, asked: Interface | int) -> dict[str, Factors]:
    """The factors by which start, rate and ε of parameters follow the model's sizes; empty with optim.scaling=none."""
    optim = config.get("optim", {})
    if optim.get("scaling", "none") == "none":
        return {}
    base, layers = at_base(config), optim["base"].get("num_layers")
    with torch.device("meta"):
        plans = [build_plan(each, asked) for each in (config, base)]
        here, small = (factory(config["model"]["topology"])(plan) for plan in plans)
    init, dims = factory(config["model"]["init"]), plans[1].dims
    scheme = init(dims if layers is None else replace(dims, num_layers=layers))
    deeper = None if layers is None else dims.num_layers / layers
    return factors(here, small, init(plans[0].dims), scheme, deeper)


def at_base(config: Config) -> Config:
    """The configuration at the width of `optim.base`, with as many layers as here."""
    base = config["optim"]["base"]
    return {**config, "model": {**config["model"], "d_model": base["d_model"], "num_heads": base["num_heads"]}}


def count_parameters(model: nn.Module) -> dict[str, int]:
    """Parameters, tied ones counted once: all, those that are no tables of positions, and those that one token uses."""
    counts = {"total": 0, "non_position": 0, "active": 0}
    for name, parameter in model.named_parameters():
        origin = origin_of(name, parameter)
        counts["total"] += parameter.numel()
        counts["active"] += round(parameter.numel() * origin.active_share)
        if not origin.role.is_position:
            counts["non_position"] += parameter.numel()
    return counts
