"""The differences of each arm to the baseline: what it says that it changes, what it changes, and what it costs."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from swapformer.catalogue import option_files
from swapformer.errors import UsageError
from swapformer.paths import conf_dir
from swapformer.results.arms import ArmCondition, ArmDifference, Shape, value_text
from swapformer.results.config import command_of, leaves
from swapformer.results.manifest import Manifest
from swapformer.study.config import overrides as texts
from swapformer.study.config.cost import once
from swapformer.study.launch.trial import Config
from swapformer.study.plan import Plan, Template
from swapformer.study.spec import Spec
from swapformer.yaml_reader import parse_yaml

MISSING = "–"
"""Stands for a leaf that only the other configuration has."""
FOLLOWS = {"data": "task", "model.max_len": "task", "budget.steps": "budget"}
"""Leaves that are worked out from others: they say nothing new where any leaf under the other key differs as well."""
_REPLAYED = re.compile(r"probes\.[^.]+\.changes\.")
"""Leaves of what a probe changes in a trained model, which are worked out from the model and the task."""


def changed(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """The leaves in which two configurations differ: name → values; MISSING where only one has it."""
    first, second = (dict(leaves(config, plain_lists_whole=True)) for config in (before, after))
    found = {
        key: (first.get(key, MISSING), second.get(key, MISSING))
        for key in dict.fromkeys([*first, *second])
        if first.get(key, MISSING) != second.get(key, MISSING)
    }
    followed = {key for key, other in FOLLOWS.items() if any(name != key and covers(other, name) for name in found)}
    asked_alike = before.get("budget", {}).keys() & {"tokens", "flops"}
    followed |= {"budget.steps"} if asked_alike else set()
    if any(covers(other, name) for name in found for other in ("model", "task")):
        followed |= {name for name in found if _REPLAYED.match(name)}
    return {key: values for key, values in found.items() if key not in followed}


def covers(name: str, leaf: str) -> bool:
    """Whether a leaf is `name` or lies under it."""
    return leaf == name or leaf.startswith(f"{name}.")


def axes(spec: Spec, arm: str) -> tuple[str, ...]:
    """The keys that an arm is about: the study's `axis`, else one; and what is tuned and matched.

    The one is what all arms that set anything have in common, the first as written where that is several, and the arm's
    own first key where it is none: further keys may be there on purpose, but nothing says so.
    """
    solved = spec.match.of(arm) if spec.match else None
    also = [*(spec.tune.values if spec.tune else ()), *((solved.key,) if solved else ())]
    keys = {name: [texts.key(override) for override in given] for name, given in spec.arms.items() if given}
    common = [key for key in next(iter(keys.values()), []) if all(key in own for own in keys.values())]
    return (*(spec.axis or (common or keys.get(arm, []))[:1]), *also)


def beyond(spec: Spec, arm: str, found: Sequence[str]) -> tuple[str, ...]:
    """Those of the changed leaves that the arm's axes do not cover."""
    known: list[str] = []
    for key in axes(spec, arm):
        known.append(key.replace("/", "."))
        if "/" not in key and "." in key:
            continue
        for name in (arm, spec.baseline):
            option = texts.value(spec.arms[name], key)
            known += _keys_set_by(key, option) if option is not None else []
    return tuple(leaf for leaf in found if not any(covers(name, leaf) for name in known))


def _keys_set_by(group: str, option: str) -> list[str]:
    """The keys that an option of a group sets, where its file says that they lie elsewhere than in the group's node."""
    path = option_files(conf_dir()).get(group, {}).get(option)
    if path is None:
        return []  # an option of the user's own, or the value of a key
    text = path.read_text(encoding="utf-8")
    package = re.search(r"^# @package (\S+)", text, re.M)
    if package is None:
        return []
    content = {key: value for key, value in (parse_yaml(text) or {}).items() if key != "defaults"}
    node = "" if package[1] == "_global_" else package[1]
    return [name for name, _ in leaves(content, node, plain_lists_whole=True)]


Counts = tuple[Callable[[Mapping[str, Any]], int | None], Callable[[Mapping[str, Any]], int | None]]


def counts_of(plan: Plan) -> Counts:
    """What counts the operations of a configuration's step, and its attended pairs, each model and task once."""
    return once(partial(flops_of_a_step, plan)), once(partial(_attended_pairs, plan))


def find_differences(plan: Plan, counts: Counts | None = None, before: Manifest | None = None) -> list[ArmDifference]:
    """One entry for every arm and condition; in the names of parameters, * is any layer.

    Args:
        plan: of a study; an arm that is still to be tuned is shown with the first of its settings.
        counts: those of an earlier call for the same study, whose arms have chosen settings since.
        before: the manifest of a report that stays as it is. What it counted of an arm that trains the same as now is
            not counted again.
    """
    shown = {each.arm_condition: each for each in plan.one_each}
    shapes, (step, pairs) = once(plan.composer.shapes), counts or counts_of(plan)
    counted = {} if before is None else {(each.arm, each.condition): each for each in before.fairness}

    def entry(each: Template) -> ArmDifference:
        known = counted.get(each.arm_condition)
        if known is not None and before is not None and before.settings.get(each.arm_condition) == plan.id_of(each):
            return replace(_entry(plan, each, shown, shapes), flops=known.flops, pairs=known.pairs)
        steps = int(each.config["budget"]["steps"])
        # no time for what is not done; what a command does is not known
        operations = step(each.config) if steps or command_of(each.config) else 0
        flops = math.nan if operations is None else operations * steps
        return replace(_entry(plan, each, shown, shapes), flops=flops, pairs=pairs(each.config))

    return [entry(each) for each in plan.one_each]


def _entry(
    plan: Plan, each: Template, shown: Mapping[ArmCondition, Template], shapes: Callable[[Config], Mapping[str, Any]]
) -> ArmDifference:
    """An entry without the operations and pairs, which take longer to count."""
    baseline = shown[plan.spec.baseline, each.condition]
    found = changed(baseline.config, each.config)
    return ArmDifference(
        each.arm,
        each.condition,
        changes=tuple((key, value_text(before), value_text(after)) for key, (before, after) in found.items()),
        beyond=beyond(plan.spec, each.arm, list(found)),
        shapes=tuple(_shapes(shapes(baseline.config), shapes(each.config))),
        flops=math.nan,
        match=plan.matched.get(each.arm_condition),
    )


def flops_of_a_step(plan: Plan, config: Mapping[str, Any]) -> int | None:
    """Operations of one step, forward and backward of matrix products; None where they cannot be counted."""
    try:
        return plan.composer.flops_of_a_step(config)
    except UsageError:
        return None


def _attended_pairs(plan: Plan, config: Mapping[str, Any]) -> int | None:
    """Pairs of query and key that a training sequence attends; None for a model that attends to none."""
    try:
        return plan.composer.cost(config, "pairs")
    except UsageError:
        return None


def _shapes(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[Shape]:
    """The parameters whose shapes differ, those of several layers counted together."""
    differing = [name for name in dict.fromkeys([*before, *after]) if before.get(name) != after.get(name)]
    counts = Counter((re.sub(r"\.\d+\.", ".*.", name), before.get(name), after.get(name)) for name in differing)
    for (name, first, second), number in counts.items():
        yield Shape(name, first, second, number)
