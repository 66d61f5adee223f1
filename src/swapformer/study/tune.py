"""Choose each arm's setting by the mean of the first metric over trials that are not reported."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean

from swapformer.errors import UsageError
from swapformer.results import record as records
from swapformer.results.arms import ArmCondition
from swapformer.results.store import Store
from swapformer.results.tuning import Choice
from swapformer.study.comparison import number
from swapformer.study.config import overrides as texts
from swapformer.study.launch.trial import Trial
from swapformer.study.plan import Plan, Setting


@dataclass(frozen=True)
class Tried:
    """A setting as its tuning trials ended: the values of those that have one, how many ended without (they diverged),
    and how many have no result yet."""

    place: ArmCondition
    setting: Setting
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
    by_place: dict[ArmCondition, list[Tried]] = {}
    for each in (_tried(plan, template.place, template.setting, trials, store) for template, trials in plan.tuning):
        by_place.setdefault(each.place, []).append(each)
    complete = {place: all_of for place, all_of in by_place.items() if not any(each.missing for each in all_of)}
    direction = _direction(plan, store)
    chosen = {place: min(all_of, key=lambda each: each.rank(direction)) for place, all_of in complete.items()}
    return {place: _choice(best, complete[place]) for place, best in chosen.items()}


def _tried(plan: Plan, place: ArmCondition, setting: Setting, trials: Sequence[Trial], store: Store) -> Tried:
    found = [store.read(trial.id) for trial in trials]
    ended = [record for record in found if record is not None and record.final]
    metric = plan.spec.metrics[0]
    values = [record.metrics[metric] for record in ended if metric in record.metrics]
    return Tried(place, setting, tuple(values), len(ended) - len(values), len(trials) - len(ended))


def _direction(plan: Plan, store: Store) -> str:
    """Which way the first metric is better, as the records say; `lower` where every trial diverged."""
    metric = plan.spec.metrics[0]
    found = [record for trial in plan.tuning_trials if (record := store.read(trial.id)) is not None]
    finished = [record for record in found if record.status == records.FINISHED]
    directions = {record.directions[metric] for record in finished if metric in record.directions}
    if finished and len(directions) != 1:
        raise UsageError(f"`tune` chooses by the first metric, but nothing says which direction of {metric} is good")
    return next(iter(directions), "lower")


def _choice(best: Tried, tried: Sequence[Tried]) -> Choice:
    if not any(each.values for each in tried):
        return Choice(*best.place, texts.values(best.setting), diverged=True)
    return Choice(*best.place, texts.values(best.setting), tuple(_edges(best, [each.setting for each in tried])))


def _edges(best: Tried, settings: Sequence[Setting]) -> Iterator[str]:
    """The keys in which the chosen setting lies at the edge of the numbers that the arm has tried."""
    for index, override in enumerate(best.setting):
        numbers = {number(setting[index].partition("=")[2]) for setting in settings}
        known = [each for each in numbers if each is not None]
        if len(known) == len(numbers) > 1 and number(override.partition("=")[2]) in (min(known), max(known)):
            yield texts.key(override)
