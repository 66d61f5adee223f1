"""Which parts go together: checked on the composed configuration, before anything is trained."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import reduce
from operator import getitem
from typing import Any

import torch
from hydra.errors import InstantiationException
from hydra.utils import instantiate
from torch import nn

from swapformer.errors import UsageError
from swapformer.model.init import Init
from swapformer.model.plan import LayerPlan
from swapformer.study.unused import unused
from swapformer.task.base import Task
from swapformer.training.assemble import build_plan

WHOLE_NUMBERS = {
    "seed": 0,
    "data_seed": 0,
    "budget.steps": 1,
    "eval.every": 1,
    "eval.batches": 1,
    "eval.final_batches": 1,
    "log_every": 1,
    "checkpoint_every": 1,
    "trainer.threads": 1,
    "trainer.accumulate_grad_batches": 1,
    "model.d_model": 1,
    "model.num_layers": 1,
    "model.num_heads": 1,
    "model.max_len": 1,
}
"""Keys that hold whole numbers, and the least of each."""

NUMBERS = {"divergence": 1.0, "trainer.gradient_clip_val": 0.0, "model.dropout": 0.0}
"""Keys that hold numbers, and the least of each."""

ACCELERATORS = ("cpu", "gpu")
PRECISIONS = ("32-true", "bf16-mixed", "16-mixed", "64-true", "bf16-true")


def check(config: Mapping[str, Any], task: Task) -> None:
    """Refuse a configuration that cannot work.

    The parts of every distinct layer, the schedule and the optimiser are made without memory, so that what a part says
    of its own settings, and what it states as a fact, is all that the rules need.

    Raises:
        UsageError: naming both sides and what would work.
    """
    if problems := [*_numbers(config), *_training(config)]:
        raise UsageError(" ".join(problems))
    try:
        with torch.device("meta"):
            _make_optimiser(config)
            plan = build_plan(config, task.vocab_size)
            init = instantiate(config["model"]["init"])(plan.dims)
            problems = [problem for layer in plan.layers for problem in _layer(layer, task)]
            problems += _initialisation(init, plan.layers, config["model"]["topology"])
            problems += _positions(plan.layers, task)
            problems += _streams(plan.layers)
            problems += unused(config["model"], plan.layers)
    except InstantiationException as error:
        raise UsageError(str(error.__cause__ or error).split("\n")[0]) from error
    except (ValueError, TypeError) as error:
        raise UsageError(str(error)) from error
    if problems:
        raise UsageError(" ".join(dict.fromkeys(problems)))


def _numbers(config: Mapping[str, Any]) -> Iterator[str]:
    for key, least in {**WHOLE_NUMBERS, **NUMBERS}.items():
        value: Any = reduce(getitem, key.split("."), config)
        kind, words = (int, "a whole number") if key in WHOLE_NUMBERS else ((int, float), "a number")
        if not isinstance(value, kind) or isinstance(value, bool) or value < least:
            yield f"`{key}` must be {words} of at least {least}, but it is {value!r}."


def _training(config: Mapping[str, Any]) -> Iterator[str]:
    trainer = config["trainer"]
    for key, known in (("accelerator", ACCELERATORS), ("precision", PRECISIONS)):
        if trainer[key] not in known:
            yield f"`trainer.{key}` must be one of {', '.join(known)}, but it is {trainer[key]!r}."
    if trainer["precision"] == "16-mixed" and config["optim"].get("fused"):
        yield "a fused optimiser cannot unscale fp16 gradients before they are clipped; set optim.fused=false."
    if trainer["devices"] != 1:
        yield f"a trial runs on one device, but trainer.devices={trainer['devices']}; run trials side by side instead."


def _make_optimiser(config: Mapping[str, Any]) -> None:
    """What optimiser and schedule say of their settings."""
    instantiate(config["schedule"])
    instantiate(config["optim"])([nn.Parameter(torch.zeros(1, device="cpu"))])


def _layer(layer: LayerPlan, task: Task) -> Iterator[str]:
    position, attention = layer.position(), layer.attention()
    norm, ffn, pattern = layer.norm(), layer.ffn(), layer.pattern()
    layer.block(branches=2 if ffn.present else 1)
    if norm.crosses_places and pattern.causal:
        yield (
            f"norm {type(norm).__name__} takes its statistics over all places in training, so that the future would "
            f"leak into the causal pattern {type(pattern).__name__}; use model/norm=layernorm, rmsnorm, scalenorm or "
            "dyt, or a pattern that is not causal (model/pattern=full)."
        )
    if missing := [tag for tag in layer.pattern().tags if tag not in task.tags]:
        yield (
            f"the pattern {type(layer.pattern()).__name__} needs the tags {', '.join(missing)}, but the task "
            f"{type(task).__name__} supplies {', '.join(task.tags) or 'none'}; choose a task that tags its places so, "
            "or model/pattern=causal, window or another one without tags."
        )
    if (refusal := attention.refuses(position)) is not None:
        yield f"{refusal}."
    if position.limit is not None and position.limit < task.max_length:
        yield (
            f"{type(position).__name__} positions have a table of {position.limit} rows (model.max_len), but the task "
            f"has sequences of {task.max_length} places; raise model.max_len, shorten the task's evaluation lengths, "
            "or use model/position=rope, alibi, t5 or none."
        )


def _initialisation(init: Init, layers: Sequence[LayerPlan], topology: Mapping[str, Any]) -> Iterator[str]:
    name = type(init).__name__
    norms = {type(layer.norm()).__name__ for layer in layers if layer.norm().normalises}
    if init.without_norm and norms:
        yield (
            f"init {name} is for models without a norm, but there is {', '.join(sorted(norms))}; use model/norm=none, "
            "or model/init=gpt2, xavier or deepnorm."
        )
    if init.zero_head and topology.get("tie_embeddings"):
        yield (
            f"init {name} starts the head at zero, so it cannot be the embedding table; set "
            "model.topology.tie_embeddings=false, or use another model/init."
        )


def _positions(layers: Sequence[LayerPlan], task: Task) -> Iterator[str]:
    """A batch has one position for each of its places, so all layers must have them drawn alike, or not at all."""
    drawn = {layer.position().drawn_from: layer.position() for layer in layers}
    if len(drawn) > 1:
        ranges = ", ".join(f"{type(position).__name__} from {size or 'nothing'}" for size, position in drawn.items())
        yield (
            f"all layers see the same positions, but they would be drawn differently: {ranges}; use "
            "model/position=randomized in all layers or in none."
        )
    for size, position in drawn.items():
        if size is not None and size < task.max_length:
            yield (
                f"{type(position).__name__} draws different positions for all places of a sequence from {size}, but "
                f"the task has sequences of {task.max_length} places; raise model.position.drawn_from."
            )
        if size is not None and position.limit is not None and position.limit < size:
            yield (
                f"{type(position).__name__} draws positions from {size}, but its encoding has a table of "
                f"{position.limit} rows (model.max_len); set model.max_len={size} or lower model.position.drawn_from."
            )


def _streams(layers: Sequence[LayerPlan]) -> Iterator[str]:
    """All layers share one stream, and one that is walked backwards must be found again from what comes after."""
    residuals = [layer.residual() for layer in layers]
    streams = {residual.keeps: type(residual).__name__ for residual in residuals}
    if len(streams) > 1:
        kinds = ", ".join(f"{name} keeps {stream}" for stream, name in streams.items())
        yield f"all layers share one stream, but their residuals differ: {kinds}; use one of them in all layers."
    for layer, residual in zip(layers, residuals, strict=True):
        if not residual.recomputes:
            continue
        name = type(residual).__name__
        if layer.placement().after:
            yield (
                f"residual {name} cannot be walked back through a norm after the sum; use model/placement=pre or "
                "sandwich, or another residual."
            )
        if layer.ffn().has_auxiliary_loss:
            yield (
                f"residual {name} computes every branch without a graph, through which the balancing loss of "
                f"{type(layer.ffn()).__name__} could not act; use model/ffn=mlp or glu, or another residual."
            )
        if layer.ffn().has_auxiliary_loss:
            yield (
                f"residual {name} computes every branch again in the backward pass, when the auxiliary loss of ffn "
                f"{type(layer.ffn()).__name__} is already spent; use model/ffn=mlp or glu, or another residual."
            )
        if layer.norm().crosses_places:
            yield (
                f"residual {name} computes every branch twice, which would count a batch twice in the running averages "
                f"of {type(layer.norm()).__name__}; use model/norm=layernorm or rmsnorm, or another residual."
            )
