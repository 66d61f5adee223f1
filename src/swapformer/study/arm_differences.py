"""What a reader needs to judge whether a comparison is fair: how each arm differs from the baseline, what it costs."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

from swapformer.errors import UsageError
from swapformer.results.fairness_summary import shown
from swapformer.study import arm_axis
from swapformer.study.config import budget
from swapformer.study.config.cost import once
from swapformer.study.plan import Choice, Plan, Template

Entry = dict[str, Any]


def disclose(plan: Plan) -> list[Entry]:
    """One entry for every arm and condition.

    `changes`: (leaf, the baseline's value, the arm's); `beyond`: the leaves that its axis does not say; `shapes`: (name
    with * for layers, the baseline's shape, the arm's, how many such parameters); `flops`: of the whole training, or
    None where they cannot be counted; `match`: what came of it.
    """
    shown = {each.place: each for each in (*reversed(plan.templates), *plan.reported)}
    step = once(partial(_flops_of_a_step, plan))
    return [
        _entry(plan, shown[place], shown[plan.spec.baseline, place[1]], step(shown[place].config))
        for place in dict.fromkeys(each.place for each in plan.templates)
    ]


def _entry(plan: Plan, each: Template, baseline: Template, step: int | None) -> Entry:
    leaves = arm_axis.changed(baseline.config, each.config)
    matched = plan.matched.get(each.place)
    return {
        "arm": each.arm,
        "condition": each.condition,
        "changes": [[key, *map(shown, values)] for key, values in leaves.items()],
        "beyond": list(arm_axis.beyond(plan.spec, each.arm, list(leaves))),
        "shapes": list(_shapes(plan.composer.shapes(baseline.config), plan.composer.shapes(each.config))),
        "flops": None if step is None else step * int(each.config["budget"]["steps"]),
        "match": None if matched is None else asdict(matched),
    }


def _flops_of_a_step(plan: Plan, config: Mapping[str, Any]) -> int | None:
    """Operations of one step, forward and backward of matrix products; None where they cannot be counted."""
    try:
        return plan.composer.flops_of_a_step(config)
    except UsageError:
        return None


def _shapes(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[list[Any]]:
    """The parameters whose shapes differ, those of several layers counted together."""
    differing = [name for name in dict.fromkeys([*before, *after]) if before.get(name) != after.get(name)]
    counts = Counter((re.sub(r"\.\d+\.", ".*.", name), before.get(name), after.get(name)) for name in differing)
    for (name, first, second), number in counts.items():
        yield [name, None if first is None else list(first), None if second is None else list(second), number]


def announced(plan: Plan, entries: Sequence[Entry]) -> Iterator[str]:
    """What was worked out while composing, in lines for the terminal."""
    for (arm, condition), matched in plan.matched.items():
        yield f"{_name(arm, condition)}: {matched.text}"
    steps: dict[str, list[str]] = {}
    for each in plan.templates:
        if text := budget.text(each.config.get("budget", {})):
            steps.setdefault(text, []).append(_name(*each.place))
    for text, names in steps.items():
        who = f" ({', '.join(dict.fromkeys(names))})" if len(steps) > 1 else ""
        yield text + who
    for entry in entries:
        if entry["beyond"]:
            says = ", ".join(arm_axis.axes(plan.spec, entry["arm"])) or "it says"
            yield (
                f"{_name(entry['arm'], entry['condition'])} differs in more than {says}: {', '.join(entry['beyond'])}; "
                "name what is compared on purpose with `axis: [...]` in the study file"
            )


def settled(plan: Plan) -> Iterator[str]:
    """What was chosen by tuning, in lines for the terminal."""
    for place in dict.fromkeys(each.place for each in plan.templates):
        choice = plan.chosen.get(place)
        yield f"{_name(*place)}: {_chosen(choice) if choice else 'not tuned, trials are missing'}"


def _chosen(choice: Choice) -> str:
    setting = ", ".join(choice.setting)
    if choice.diverged:
        return f"every setting that was tried diverged; {setting} is only the first; put other values into `tune`"
    return setting + (" (at the edge of what was tried)" if choice.edges else "")


def _name(arm: str, condition: str) -> str:
    return f"{arm} with {condition}" if condition else arm
