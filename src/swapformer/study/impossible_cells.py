"""What a study asks for and cannot have: said, or refused where nothing is left to compare or to choose."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from swapformer.errors import UsageError
from swapformer.results.arms import ArmCondition, arm_name
from swapformer.study.plan import Plan, Setting, Template
from swapformer.study.spec import Spec


def require_comparison(spec: Spec, templates: Sequence[Template], impossible: Mapping[ArmCondition, str]) -> None:
    """Refuse a study of several arms of which only the baseline is left."""
    if len(spec.arms) == 1 or any(each.arm != spec.baseline for each in templates):
        return
    arms_of: dict[str, list[str]] = {}
    for (arm, _), reason in impossible.items():
        arms_of.setdefault(reason, []).append(arm)
    reasons = "; ".join(f"{', '.join(dict.fromkeys(arms))}: {reason}" for reason, arms in arms_of.items())
    raise UsageError(f"a study needs an arm beside its baseline {spec.baseline!r}, but none is possible: {reasons}")


def require_values(
    spec: Spec, templates: Sequence[Template], refused: Mapping[tuple[ArmCondition, Setting], str]
) -> None:
    """Refuse a value of what is tuned that no arm can take."""
    taken = {override for each in templates for override in each.setting}
    for key, values in (spec.tune.values if spec.tune else {}).items():
        for override in (f"{key}={value}" for value in values):
            if override not in taken:
                reason = next(reason for (_, setting), reason in refused.items() if override in setting)
                raise UsageError(f"no arm can take {override}, which `tune` lists: {reason}")


def said(plan: Plan) -> Iterator[str]:
    """What was left out and why, in lines for the terminal."""
    for place, reason in plan.impossible.items():
        yield f"arm {arm_name(*place)} is impossible and left out: {reason}"
    for (place, setting), reason in plan.refused.items():
        yield f"arm {arm_name(*place)} cannot have {', '.join(setting)}, which is not tried: {reason}"
    left = Counter(each.place for each in plan.templates)
    refused = dict.fromkeys(place for place, _ in plan.refused)
    yield from (
        f"arm {arm_name(*place)} is left with one setting, so nothing is tuned" for place in refused if left[place] < 2
    )
