"""A budget in steps, tokens or operations: from what was asked to the steps that are trained."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache, reduce
from operator import getitem
from typing import Annotated, Any

from hydra.errors import InstantiationException

from swapformer.errors import UsageError
from swapformer.paths import conf_dir
from swapformer.ranges import Within
from swapformer.study.config.cost import flops_of_a_step
from swapformer.targets import make
from swapformer.task.base import Task
from swapformer.training.schedule import Schedule
from swapformer.yaml_reader import read_yaml

STEPS = 1000
"""Where nothing is asked for."""
KINDS = {"tokens": "tokens", "flops": "FLOP"}
"""What a budget may be counted in besides steps, and the unit."""
INTERVALS = {
    "eval.every": "evaluated only after training",
    "log_every": "no training loss in the history",
    "checkpoint_every": "a killed trial starts again",
}
"""Settings in steps that a short budget never reaches, and what follows."""
Amount = Annotated[float, Within("(0, 1e30]")]


def resolve(config: Mapping[str, Any], task: Task) -> dict[str, Any]:
    """The `budget` node with its steps worked out: the most whole steps that the budget pays for.

    A step takes as many tokens as its batch has positions (those of a source among them), and the operations of matrix
    products, forward and backward, that `swapformer cost` counts for such a batch. Steps stay None where the model
    cannot be counted: `explain` says why.

    Raises:
        UsageError: unless at most one budget is given, of one step or more, or of no steps; of a measurement, none.
    """
    node = dict(config["budget"])
    asked = {kind: value for kind in ("steps", *KINDS) if (value := node.pop(kind, None)) is not None}
    if config.get("measure"):
        if given := " and ".join(f"budget.{kind}={value}" for kind, value in asked.items() if value):
            raise UsageError(
                f"what measures trains nothing, but {config['measure']['_target_'].rpartition('.')[2]} was given with "
                f"{given}; leave the budget out, or use measure=none"
            )
        return {**node, "steps": 0}
    if len(asked) > 1:
        given = " and ".join(f"budget.{kind}={value}" for kind, value in asked.items())
        raise UsageError(f"a budget must be given in one kind, not {given}; set the others to null")
    if not asked:
        return {**node, "steps": STEPS}
    ((kind, amount),) = asked.items()
    if kind == "steps":
        return {**node, **asked}
    try:
        each = of_a_step(config, task, kind)
    except (ValueError, TypeError, RuntimeError, InstantiationException):
        return {**node, "steps": None, **asked}
    if amount < each:
        raise UsageError(f"budget.{kind}={amount:g} is less than one step, which takes {each:,} {KINDS[kind]}")
    return {**node, "steps": int(amount // each), **asked}


def of_a_step(config: Mapping[str, Any], task: Task, kind: str) -> int:
    """The part of a budget of this kind that one step takes. Raises what counting operations raises."""
    return task.train_batch(config["data_seed"], 0).num_positions if kind == "tokens" else flops_of_a_step(config)


def at_share(config: Mapping[str, Any], share: float) -> list[str]:
    """The overrides that train a configuration for a share of its steps, its warm-up and intervals shorter alike."""
    steps = config["budget"]["steps"]
    if config.get("measure") or not steps:
        raise UsageError("a first stage needs steps, but here nothing is trained; leave `first_stage` out of `tune`")
    found = [f"budget.{kind}=null" for kind in KINDS if kind in config["budget"]]
    for key in ("budget.steps", "schedule.warmup_steps", *INTERVALS):
        value = steps if key == "budget.steps" else _value(config, key)
        if value:
            found.append(f"{key}={max(1, round(share * value))}")
    return found


def too_short(config: Mapping[str, Any]) -> str | None:
    """Why the steps are too few for what is asked to happen during them, with the overrides that fit; None if they do.

    A warm-up must leave a step at the peak rate and one of the decay. An interval may lie beyond the budget only where
    it is the default of `train.yaml`: `lines` says so.
    """
    steps = config["budget"]["steps"]
    if steps == 0:
        return None  # nothing is trained, so nothing is asked to happen during it
    wanted, largest = config["schedule"]["warmup_steps"], make(config["schedule"], Schedule).longest_warmup(steps)
    found = {"schedule.warmup_steps": largest} if wanted > largest else {}
    found |= {key: steps for key, value in _beyond(config).items() if value != _defaults()[key]}
    if not found:
        return None
    given = " and ".join(f"{key}={_value(config, key)}" for key in found)
    why = " (the learning rate would never reach its peak, or never decay)" if wanted > largest else ""
    fits = " ".join(f"{key}={value}" for key, value in found.items())
    counted = text(config["budget"])
    budget = f"{counted}," if counted else f"budget.steps={steps} is"
    return f"{budget} too few for {given}{why}; raise the budget, or add what fits: {fits}."


def lines(config: Mapping[str, Any]) -> Iterator[str]:
    """Lines for the terminal about a budget, before it is spent."""
    if (counted := text(config["budget"])) is not None:
        yield counted
    if beyond := _beyond(config):
        given = " and ".join(f"{key}={value}" for key, value in beyond.items())
        follows = ", ".join(INTERVALS[key] for key in beyond)
        lie = "lies" if len(beyond) == 1 else "lie"
        yield f"{given} {lie} beyond the budget of {config['budget']['steps']} steps: {follows}"


def text(budget: Mapping[str, Any]) -> str | None:
    """`budget.tokens=1e+06 is 976 steps`; None for a budget in steps."""
    for kind in KINDS:
        if kind in budget:
            return f"budget.{kind}={budget[kind]:g} is {budget['steps']} steps"
    return None


def _beyond(config: Mapping[str, Any]) -> dict[str, int]:
    """The intervals that never come in a training, by key."""
    if config["budget"]["steps"] == 0:
        return {}
    asked = {key: _value(config, key) for key in INTERVALS}
    return {key: value for key, value in asked.items() if value is not None and value > config["budget"]["steps"]}


def _value(config: Mapping[str, Any], key: str) -> Any:
    return reduce(getitem, key.split("."), config)


@cache
def _defaults() -> dict[str, int]:
    """The intervals of the primary configuration, by key."""
    primary = read_yaml(conf_dir() / "train.yaml")
    return {key: reduce(getitem, key.split("."), primary) for key in INTERVALS}
