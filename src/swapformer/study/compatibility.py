"""Which parts go together: checked on the composed configuration, before anything is trained."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch

from swapformer.errors import UsageError
from swapformer.model.plan import LayerPlan, ModelPlan
from swapformer.task.base import Task
from swapformer.training.assemble import build_plan


def check(config: Mapping[str, Any], task: Task) -> None:
    """Refuse a configuration that cannot work.

    The parts of every distinct layer are made without memory, so that what a part says of its own settings, and what it
    states as a fact, is all that the rules need.

    Raises:
        UsageError: naming both sides and what would work.
    """
    try:
        with torch.device("meta"):
            plan = build_plan(config, task.vocab_size)
            problems = list(_problems(config, plan, task))
    except (ValueError, TypeError) as error:
        raise UsageError(str(error)) from error
    if problems:
        raise UsageError(" ".join(problems))


def _problems(config: Mapping[str, Any], plan: ModelPlan, task: Task) -> Iterator[str]:
    yield from _sizes(config, task)
    seen: set[str] = set()
    for layer in plan.layers:
        for problem in _layer_problems(layer, config, task):
            if problem not in seen:
                seen.add(problem)
                yield problem


def _sizes(config: Mapping[str, Any], task: Task) -> Iterator[str]:
    for key, least in (("budget.steps", 1), ("eval.every", 1), ("eval.batches", 1), ("eval.final_batches", 1),
                       ("log_every", 1), ("checkpoint_every", 1), ("trainer.threads", 1),
                       ("trainer.accumulate_grad_batches", 1)):  # fmt: skip
        value: Any = config
        for word in key.split("."):
            value = value[word]
        if not isinstance(value, int) or value < least:
            yield f"`{key}` must be a whole number of at least {least}, but it is {value!r}."
    if config["trainer"]["precision"] == "16-mixed" and config["optim"].get("fused"):
        yield "a fused optimiser cannot unscale fp16 gradients before they are clipped; set optim.fused=false."
    if config["trainer"]["devices"] != 1:
        yield (
            f"a trial runs on one device, but trainer.devices={config['trainer']['devices']}; run several trials side "
            "by side instead."
        )


def _layer_problems(layer: LayerPlan, config: Mapping[str, Any], task: Task) -> Iterator[str]:
    position, attention = layer.position(), layer.attention()
    layer.ffn()
    layer.block(branches=2)
    if (refusal := attention.refuses(position)) is not None:
        yield f"{refusal}; use model/kernel=auto or reference."
    if position.limit is not None and position.limit < task.max_length:
        yield (
            f"{type(position).__name__} positions have a table of {position.limit} rows (model.max_len), but the task "
            f"has sequences of {task.max_length} places; raise model.max_len, shorten the task's evaluation lengths, "
            "or use model/position=rope, alibi, t5 or none."
        )
