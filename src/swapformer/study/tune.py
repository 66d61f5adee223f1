"""Chooses each arm's setting by the mean of the first metric over trials that are not reported."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from swapformer.errors import UsageError
from swapformer.results import record as records
from swapformer.results.arms import ArmCondition
from swapformer.results.store import Store
from swapformer.results.tuning import Choice
from swapformer.study.comparison import number
from swapformer.study.launch.trial import Trial
from swapformer.study.plan import Plan, Template


@dataclass(frozen=True)
class SettingResult:
    """The results of an arm's tuning trials with one setting.

    Attributes:
        values: of the first metric, of the trials that have one.
        lost: how many ended without one: they diverged.
        missing: how many have no result yet.
    """

    template: Template
    values: tuple[float, ...]
    lost: int
    missing: int

    def rank(self, direction: str) -> tuple[int, float]:
        """Smaller is better: fewer diverged trials first, then the mean of the others."""
        mean = fmean(self.values) if self.values else math.inf
        return self.lost, -mean if direction == "higher" and self.values else mean


def choose(plan: Plan, store: Store) -> dict[ArmCondition, Choice]:
    """The best setting of every arm whose tuning trials all have their result.

    A setting with fewer diverged trials is better than one with a better mean. Of equal ones the first in the study
    file's order is taken. An arm of which some tuning trial has no result gets no setting, and so no reported trials.

    Raises:
        UsageError: when no trial says which direction of the metric is good.
    """
    by_arm: dict[ArmCondition, list[SettingResult]] = {}
    for template, trials in plan.tuning:
        by_arm.setdefault(template.arm_condition, []).append(_result(plan, template, trials, store))
    direction = _direction(plan, store)
    return {
        arm: _choice(min(results, key=lambda each: each.rank(direction)), results)
        for arm, results in by_arm.items()
        if not any(each.missing for each in results)
    }


def _result(plan: Plan, template: Template, trials: Sequence[Trial], store: Store) -> SettingResult:
    found = [store.read(trial.id) for trial in trials]
    ended = [record for record in found if record is not None and record.final]
    metric = plan.spec.metrics[0]
    values = tuple(record.metrics[metric] for record in ended if metric in record.metrics)
    return SettingResult(template, values, len(ended) - len(values), len(trials) - len(ended))


def _direction(plan: Plan, store: Store) -> str:
    """The good direction of the first metric, as the records say; `lower` where every trial diverged."""
    metric = plan.spec.metrics[0]
    found = [record for trial in plan.tuning_trials if (record := store.read(trial.id)) is not None]
    finished = [record for record in found if record.status == records.FINISHED]
    directions = {record.directions[metric] for record in finished if metric in record.directions}
    if finished and len(directions) != 1:
        raise UsageError(f"`tune` chooses by the first metric, but nothing says which direction of {metric} is good")
    return next(iter(directions), "lower")


def _choice(best: SettingResult, results: Sequence[SettingResult]) -> Choice:
    arm, values = best.template.arm_condition, best.template.values
    if not any(each.values for each in results):
        return Choice(*arm, values, diverged=True)
    return Choice(*arm, values, tuple(_edges(values, [each.template.values for each in results])))


def _edges(best: Mapping[str, str], settings: Sequence[Mapping[str, str]]) -> Iterator[str]:
    """The keys in which the chosen setting lies at the edge of the numbers that the arm has tried."""
    for key, value in best.items():
        numbers = {number(setting[key]) for setting in settings}
        known = [each for each in numbers if each is not None]
        if len(known) == len(numbers) > 1 and number(value) in (min(known), max(known)):
            yield key
