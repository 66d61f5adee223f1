"""How each arm differs from the baseline, and what it costs: whether a comparison is fair."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from swapformer.errors import UsageError
from swapformer.results.arms import ArmDifference, Shape, arm_name, value_text
from swapformer.results.tuning import Choice
from swapformer.study import arm_axis
from swapformer.study.config import budget
from swapformer.study.config.cost import once
from swapformer.study.plan import Plan, Setting, Template


def disclose(plan: Plan) -> list[ArmDifference]:
    """One entry for every arm and condition; in the names of parameters, * stands for any layer."""
    shown = {each.place: each for each in (*reversed(plan.templates), *plan.reported)}
    step = once(partial(_flops_of_a_step, plan))
    return [
        _entry(plan, shown[place], shown[plan.spec.baseline, place[1]], step(shown[place].config))
        for place in dict.fromkeys(each.place for each in plan.templates)
    ]


def _entry(plan: Plan, each: Template, baseline: Template, step: int | None) -> ArmDifference:
    leaves = arm_axis.changed(baseline.config, each.config)
    return ArmDifference(
        each.arm,
        each.condition,
        changes=tuple((key, value_text(before), value_text(after)) for key, (before, after) in leaves.items()),
        beyond=arm_axis.beyond(plan.spec, each.arm, list(leaves)),
        shapes=tuple(_shapes(plan.composer.shapes(baseline.config), plan.composer.shapes(each.config))),
        flops=math.nan if step is None else step * int(each.config["budget"]["steps"]),
        match=plan.matched.get(each.place),
    )


def _flops_of_a_step(plan: Plan, config: Mapping[str, Any]) -> int | None:
    """Operations of one step, forward and backward of matrix products; None where they cannot be counted."""
    try:
        return plan.composer.flops_of_a_step(config)
    except UsageError:
        return None


def _shapes(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[Shape]:
    """The parameters whose shapes differ, those of several layers counted together."""
    differing = [name for name in dict.fromkeys([*before, *after]) if before.get(name) != after.get(name)]
    counts = Counter((re.sub(r"\.\d+\.", ".*.", name), before.get(name), after.get(name)) for name in differing)
    for (name, first, second), number in counts.items():
        yield Shape(name, first, second, number)


def announced(plan: Plan, differences: Sequence[ArmDifference]) -> Iterator[str]:
    """What was worked out while composing, in lines for the terminal."""
    for (arm, condition), matched in plan.matched.items():
        yield f"{arm_name(arm, condition)}: {matched.text}"
    steps: dict[str, list[str]] = {}
    for each in plan.templates:
        if text := budget.text(each.config.get("budget", {})):
            steps.setdefault(text, []).append(arm_name(*each.place))
    for text, names in steps.items():
        who = f" ({', '.join(dict.fromkeys(names))})" if len(steps) > 1 else ""
        yield text + who
    for found in differences:
        if found.beyond:
            says = ", ".join(arm_axis.axes(plan.spec, found.arm)) or "it says"
            yield (
                f"{arm_name(found.arm, found.condition)} differs in more than {says}: {', '.join(found.beyond)}; "
                "name what is compared on purpose with `axis: [...]` in the study file"
            )


def settled(plan: Plan) -> Iterator[str]:
    """What was chosen by tuning, in lines for the terminal."""
    settings = {each.place: each.setting for each in plan.reported}
    for place in dict.fromkeys(each.place for each in plan.templates):
        choice = plan.chosen.get(place)
        yield f"{arm_name(*place)}: {_chosen(choice, settings[place]) if choice else 'not tuned, trials are missing'}"


def _chosen(choice: Choice, setting: Setting) -> str:
    text = ", ".join(setting)
    if choice.diverged:
        return f"every setting that was tried diverged; {text} is only the first; put other values into `tune`"
    return text + (" (at the edge of what was tried)" if choice.edges else "")
