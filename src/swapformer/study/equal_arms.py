"""Finds arms that would train the same model, before anything is trained: what tells them apart does nothing."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from swapformer.errors import UsageError, quote
from swapformer.results.arms import ArmCondition, is_computation, value_text
from swapformer.results.config import leaves
from swapformer.results.record import FINAL
from swapformer.results.store import Store
from swapformer.study.arm_differences import MISSING, changed
from swapformer.study.launch.missing_trials import trial_status
from swapformer.study.plan import Plan, Template, with_seed
from swapformer.study.spec import Spec, claims_of

SMOKE = "smoke"
"""The scale whose sizes and budgets may be too small for a setting to act."""
ALLOWED = "same_model"
"""In `allow` of both arms: they are compared all the same."""
_SHOWN = 2
"""Settings that a message names."""
_OF_LAYER = re.compile(r"model\.layers\.\d+\.")
_LONGEST = 20
"""Characters that it shows of a value."""
DECIDED_BY_TRAINING = ("val/", "test/", "probe/")
"""Beginnings of metrics that the training of a model decides; what is timed or counted may differ without one."""


@dataclass(frozen=True)
class EqualArms:
    """Two arms that would train the same model in a condition, the settings that tell them apart, and a metric."""

    arm: str
    other: str
    condition: str
    settings: tuple[str, ...]
    metric: str
    allowed: bool
    known: bool = True

    @property
    def text(self) -> str:
        """In words."""
        if not self.known:
            both = f"arms {quote(self.arm)} and {quote(self.other)}"
            return (
                f"{both} could not be compared before they train: one of them cannot be run on the CPU of this machine"
            )
        more = f" and {len(self.settings) - _SHOWN} more" if len(self.settings) > _SHOWN else ""
        verb = "does" if len(self.settings) == 1 else "do"
        where = f" with {self.condition}" if self.condition else ""
        return (
            f"arms {quote(self.arm)} and {quote(self.other)} would train the same model{where}, so {self.metric} "
            f"cannot differ: {', '.join(self.settings[:_SHOWN])}{more} {verb} nothing here"
        )


def check_equal_arms(plan: Plan, store: Store) -> list[str]:
    """Refuse arms that are compared and would train the same model; lines for the terminal about those that may.

    At the smoke scale, with `allow=[same_model]`, and in only some conditions of a grid, such arms are told of. Arms
    that all have their results are for the report to judge.

    Raises:
        UsageError: for the first two such arms.
    """
    found = list(equal_arms(plan, store))
    conditions: dict[tuple[str, str], set[str]] = {}
    for each in found:
        conditions.setdefault((each.arm, each.other), set()).add(each.condition)
    for each in found:
        everywhere = _conditions_of(plan, each.arm) & _conditions_of(plan, each.other)
        alike_everywhere = conditions[each.arm, each.other] >= everywhere
        if each.known and alike_everywhere and plan.spec.scale != SMOKE and not each.allowed:
            raise UsageError(f"{each.text}; take one out, or set what makes it act")
    return list(dict.fromkeys(each.text for each in found))


def equal_arms(plan: Plan, store: Store) -> Iterator[EqualArms]:
    """The arms that are compared, lack a result, and would train the same model with every setting of what is tuned."""
    where: dict[tuple[str, str], dict[tuple[str, ...], Template]] = {}
    for each in plan.templates:
        where.setdefault(each.arm_condition, {})[each.setting] = each
    lacking = _lacking(plan, store)
    for (arm, other), metric in compared(plan.spec).items():
        for condition in plan.spec.conditions:
            first, second = where.get((arm, condition), {}), where.get((other, condition), {})
            both = [(first[setting], second[setting]) for setting in first if setting in second]
            if not both or not {(arm, condition), (other, condition)} & lacking:
                continue
            settings = _settings(*both[0])
            same = [_same(plan, *pair) for pair in both] if settings else [False]
            if False not in same:
                allowed = all(ALLOWED in each.config.get("allow", ()) for each in both[0])
                yield EqualArms(arm, other, condition, settings, metric, allowed, known=None not in same)


def compared(spec: Spec) -> dict[tuple[str, str], str]:
    """The pairs of arms that a claim or the report compares in what training decides, each with a metric."""
    pairs: dict[frozenset[str], tuple[tuple[str, str], str]] = {}
    derived = ("derived/", "slope(", "log(", "capped(")
    for claim in claims_of(spec):
        metric = claim.metrics[0] if claim.metrics else "whether it diverges"
        first, *others = claim.arms
        if not claim.exact and (not claim.metrics or metric.startswith((*DECIDED_BY_TRAINING, *derived))):
            for other in others:
                pairs.setdefault(frozenset((first, other)), ((first, other), metric))
    reported = [metric for metric in spec.metrics if metric.startswith(DECIDED_BY_TRAINING)]
    for arm in spec.arms if reported else ():
        if arm != spec.baseline:
            pairs.setdefault(frozenset((arm, spec.baseline)), ((arm, spec.baseline), reported[0]))
    return dict(pairs.values())


def _settings(one: Template, other: Template) -> tuple[str, ...]:
    """The settings that tell two arms apart, with both values; none if they say how a trial is computed alone."""
    found = changed(other.config, one.config)
    own = {
        leaf: (_held(one, leaf, mine), _held(other, leaf, theirs))
        for leaf, (theirs, mine) in found.items()
        if leaf not in ("model.layers", "model.encoder.layers") and not is_computation(leaf)
    }
    return tuple(
        f"{leaf} ({', '.join(value_text(value)[:_LONGEST] for value in both)})"
        for leaf, both in own.items()
        if both[0] != both[1]
    )


def _held(template: Template, leaf: str, value: Any) -> Any:
    """The value of a leaf of a configuration; of one that a layer has not of its own, the model's."""
    if value == MISSING and (layer := _OF_LAYER.match(leaf)):
        return dict(leaves(template.config["model"], plain_lists_whole=True)).get(leaf[layer.end() :], value)
    return value


def _same(plan: Plan, one: Template, other: Template) -> bool | None:
    seed = plan.spec.seeds[0]
    return plan.composer.same_training(with_seed(one.config, seed), with_seed(other.config, seed))


def _conditions_of(plan: Plan, arm: str) -> set[str]:
    return {each.condition for each in plan.templates if each.arm == arm}


def _lacking(plan: Plan, store: Store) -> set[ArmCondition]:
    """The arms in their conditions that lack a result of the trials that come first."""
    tuning = [(each.template.arm_condition, trial) for each in plan.tuning for trial in each.trials]
    first = tuning or [((cell.arm, cell.condition), cell.trial) for cell in plan.cells]
    return {where for where, trial in first if trial_status(trial, store) not in FINAL}
