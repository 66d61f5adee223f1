"""From a resolved configuration to the task and the model that it names."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from hydra.errors import InstantiationException
from hydra.utils import get_class, instantiate
from torch import nn

from swapformer.model.dims import Dims, head_width
from swapformer.model.init import initialise
from swapformer.model.layers import origin_of
from swapformer.model.plan import LayerPlan, ModelPlan
from swapformer.task.base import Task

Config = Mapping[str, Any]

MODEL_SLOTS = ("topology", "init")
LAYER_SLOTS = (
    "position",
    "attention",
    "score",
    "normaliser",
    "pattern",
    "kernel",
    "qk_norm",
    "norm",
    "placement",
    "residual",
    "block",
    "ffn",
    "activation",
)
SLOTS = MODEL_SLOTS + LAYER_SLOTS
LAYER_SIZES = ("num_heads", "head_dim", "dropout", "bias")


def build_task(config: Config) -> Task:
    """The task of a trial.

    Raises:
        ValueError: what the task says of its settings, without Hydra's words around it.
    """
    try:
        task: Task = instantiate(config["task"])
    except InstantiationException as error:
        raise (error.__cause__ if isinstance(error.__cause__, ValueError) else error) from None
    return task


def factory(node: Config) -> Callable[..., Any]:
    """What Hydra's `instantiate` makes of a part's node, without the time that it takes for nested ones."""
    assert node["_partial_"], "a part's node makes a factory"
    settings = {key: copy.deepcopy(value) for key, value in node.items() if not key.startswith("_")}
    return partial(get_class(node["_target_"]), **settings)


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


def build_plan(config: Config, vocab_size: int) -> ModelPlan:
    """One factory per slot and layer; layers that override nothing share theirs."""
    model = config["model"]
    base = {slot: factory(model[slot]) for slot in LAYER_SLOTS}
    shared: dict[Any, Any] = {}

    def layer(overrides: Config) -> LayerPlan:
        slots = {slot: factory(overrides[slot]) if slot in overrides else base[slot] for slot in LAYER_SLOTS}
        sizes = {name: value for name, value in overrides.items() if name in LAYER_SIZES}
        return LayerPlan(build_dims({**model, **sizes}, vocab_size), slots, shared)

    layers = model["layers"] or [{}] * model["num_layers"]
    return ModelPlan(build_dims(model, vocab_size), tuple(layer(overrides) for overrides in layers))


def build_model(config: Config, vocab_size: int) -> nn.Module:
    """The model of a trial, its weights drawn from the trial's seed on the CPU."""
    plan = build_plan(config, vocab_size)
    model: nn.Module = factory(config["model"]["topology"])(plan)
    initialise(model, factory(config["model"]["init"])(plan.dims), config["seed"])
    return model


def count_parameters(model: nn.Module) -> dict[str, int]:
    """Parameters, tied ones counted once: all of them, and those that are not tables of positions."""
    counts = {"total": 0, "non_position": 0}
    for name, parameter in model.named_parameters():
        counts["total"] += parameter.numel()
        if not origin_of(name, parameter).role.is_position:
            counts["non_position"] += parameter.numel()
    return counts
