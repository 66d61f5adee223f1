"""A budget in steps, tokens or operations: from what was asked to the steps that are trained."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from hydra.errors import InstantiationException

from swapformer.errors import UsageError
from swapformer.ranges import Within, check
from swapformer.study.config.cost import flops_of_a_step
from swapformer.task.base import Task

STEPS = 1000
"""Where nothing is asked for."""
KINDS = {"tokens": "tokens", "flops": "FLOP"}
"""What a budget may be counted in besides steps, and the unit."""
Amount = Annotated[float, Within("(0, 1e30]")]


def resolve(config: Mapping[str, Any], task: Task) -> dict[str, Any]:
    """The `budget` node with its steps worked out: the most whole steps that the budget pays for.

    A step takes as many tokens as its batch has positions (those of a source among them), and the operations of matrix
    products, forward and backward, that `swapformer cost` counts for such a batch. Steps stay None where the model
    cannot be counted: `explain` says why.

    Raises:
        UsageError: unless at most one budget is given, of one step or more.
    """
    node = dict(config["budget"])
    asked = {kind: value for kind in ("steps", *KINDS) if (value := node.pop(kind, None)) is not None}
    if len(asked) > 1:
        given = " and ".join(f"budget.{kind}={value}" for kind, value in asked.items())
        raise UsageError(f"a budget must be given in one kind, not {given}; set the others to null")
    if not asked:
        return {**node, "steps": STEPS}
    ((kind, amount),) = asked.items()
    if kind == "steps":
        return {**node, **asked}
    check(Amount, amount, f"budget.{kind}")
    try:
        each = of_a_step(config, task, kind)
    except (ValueError, TypeError, RuntimeError, InstantiationException):
        return {**node, "steps": None, **asked}
    if amount < each:
        raise UsageError(f"budget.{kind}={amount:g} is less than one step, which takes {each:,} {KINDS[kind]}")
    return {**node, "steps": int(amount // each), **asked}


def of_a_step(config: Mapping[str, Any], task: Task, kind: str) -> int:
    """What one step takes of a budget of this kind. Raises what counting operations raises."""
    return task.train_batch(config["data_seed"], 0).num_positions if kind == "tokens" else flops_of_a_step(config)


def text(budget: Mapping[str, Any]) -> str | None:
    """`budget.tokens=1e+06 is 976 steps`; None for a budget in steps."""
    for kind in KINDS:
        if kind in budget:
            return f"budget.{kind}={budget[kind]:g} is {budget['steps']} steps"
    return None
