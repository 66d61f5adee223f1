"""From a resolved configuration to the task and the model that it names."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from hydra.errors import InstantiationException
from hydra.utils import get_object, instantiate
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
    """What Hydra's `instantiate` makes of a part's node, but faster; parts within it are factories too."""
    assert node["_partial_"], "a part's node makes a factory"
    settings = {key: _setting(value) for key, value in node.items() if not key.startswith("_")}
    return partial(get_object(node["_target_"]), **settings)


def _setting(value: Any) -> Any:
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


def build_plan(config: Config, vocab_size: int) -> ModelPlan:
    """One factory per slot and layer; layers that override nothing share theirs."""
    model = config["model"]
    base = {slot: factory(model[slot]) for slot in LAYER_SLOTS}
    shared: dict[Any, Any] = {}

    def layer(index: int, overrides: Config) -> LayerPlan:
        slots = {slot: factory(overrides[slot]) if slot in overrides else base[slot] for slot in LAYER_SLOTS}
        sizes = {name: value for name, value in overrides.items() if name in LAYER_SIZES}
        return LayerPlan(replace(build_dims({**model, **sizes}, vocab_size), layer=index), slots, shared)

    layers = model["layers"] or [{}] * model["num_layers"]
    plans = tuple(layer(index, overrides) for index, overrides in enumerate(layers))
    return ModelPlan(build_dims(model, vocab_size), plans)


def build_model(config: Config, vocab_size: int) -> nn.Module:
    """The model of a trial, its weights drawn from the trial's seed on the CPU."""
    plan = build_plan(config, vocab_size)
    model: nn.Module = factory(config["model"]["topology"])(plan)
    initialise(model, factory(config["model"]["init"])(plan.dims), config["seed"])
    return model


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
