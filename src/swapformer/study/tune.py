"""Chooses each arm's setting by the mean of one metric over trials that are not reported.

Either every setting is tried with all tuning seeds; or a first stage tries them with one seed at a share of the steps,
and only the best one and its neighbours are tried with all of them at the whole budget. Where the best lies at an end
of what is tried, the next value, twice or half of it, is tried too: at most `GROWTH` times for each arm and key.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from swapformer.errors import UsageError
from swapformer.report import number_format
from swapformer.results import record as records
from swapformer.results.arms import ArmCondition, arm_name
from swapformer.results.record import Record
from swapformer.results.store import Store
from swapformer.results.tuning import Choice
from swapformer.study.comparison import number
from swapformer.study.launch.trial import Trial
from swapformer.study.plan import Attempt, Plan, Setting, Template

GROWTH = 3
"""How often the values of a key may grow by a factor of 2, for each arm in its condition."""


@dataclass(frozen=True)
class SettingResult:
    """The results of an arm's tuning trials with one setting.

    Attributes:
        values: of the metric, of the trials that have one.
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


def tuned(plan: Plan, store: Store) -> Plan:
    """The plan with the settings that its results choose; of a search in two stages also with what it asks for next.

    An arm of which some tuning trial has no result gets no setting, and so no reported trials.

    Raises:
        UsageError: when no trial says which direction of the metric is good, and for a metric that cannot choose since
            a first stage left it equal with several settings.
    """
    if plan.spec.tune is None:
        return plan
    if plan.spec.tune.first_stage is None:
        return replace(plan, chosen=choose(plan, store))
    searches = [_Search(plan, store, templates) for templates in _by_arm(plan.templates).values()]
    chosen = [search.run() for search in searches]
    return replace(
        plan,
        templates=tuple(each for search in searches for each in search.known.values()),
        refused={**plan.refused, **{key: reason for search in searches for key, reason in search.refused.items()}},
        searched=tuple(each for search in searches for each in search.attempts),
        chosen={search.where: choice for search, choice in zip(searches, chosen, strict=True) if choice is not None},
    )


def expected_attempts(plan: Plan) -> Iterator[Attempt]:
    """What a search in two stages will try at the whole budget, where its first stage has not ended: any three."""
    if plan.spec.tune is None or plan.spec.tune.first_stage is None:
        return
    begun = {each.template.arm_condition for each in plan.tuning if each.share == 1}
    for where, templates in _by_arm(plan.templates).items():
        if where not in begun:
            yield from (plan.attempt(each) for each in templates[:3])


def _by_arm(templates: Iterable[Template]) -> dict[ArmCondition, list[Template]]:
    found: dict[ArmCondition, list[Template]] = {}
    for each in templates:
        found.setdefault(each.arm_condition, []).append(each)
    return found


class _Search:
    """The search of one arm in its condition, followed as far as there are results.

    `known`: its settings, those of the study file first. `attempts`: what has been asked for.
    """

    def __init__(self, plan: Plan, store: Store, templates: Sequence[Template]) -> None:
        self.plan, self.store = plan, store
        self.where = templates[0].arm_condition
        self.known = {each.setting: each for each in templates}
        self.keys = list(templates[0].values)
        asked = plan.spec.tune.values if plan.spec.tune else {}
        self.given = [each for each in templates if all(value in asked[key] for key, value in each.values.items())]
        self.grid = {key: _ordered(each.values[key] for each in self.given) for key in self.keys}
        self.grown = Counter[str]()
        self.attempts: list[Attempt] = []
        self.refused: dict[tuple[ArmCondition, Setting], str] = {}
        self.direction = ""  # known once a first stage has ended

    def run(self) -> Choice | None:
        """The chosen setting; None where trials that it depends on have no result."""
        first = [self._try(each, first=True) for each in self.given]
        if any(each.missing for each in first):
            return None
        if not any(each.values for each in first):
            return _choice(first[0], first)
        ended = [self.store.read(trial.id) for each in self.attempts for trial in each.trials]
        self.direction = _direction_of(ended, self.plan.spec.tuned_by)
        while beyond := self._beyond(self._best(first)):
            first += [self._try(each, first=True) for each in beyond]
            if any(each.missing for each in first):
                return None
        self._require_told_apart(first)
        whole: dict[Setting, SettingResult] = {}
        best = self._best(first)
        while new := [each for each in self._around(best) if each.setting not in whole]:
            whole |= {each.setting: self._try(each) for each in new}
            if any(each.missing for each in whole.values()):
                return None
            best = self._best(list(whole.values()), best)
        # the ends are those of both stages
        edges = tuple(_edges(best.values, [each.template.values for each in self.attempts]))
        lost = not any(each.values for each in whole.values())
        return Choice(*self.where, best.values, () if lost else edges, lost, sum(self.grown.values()))

    def _try(self, template: Template, first: bool = False) -> SettingResult:
        attempt = self.plan.attempt(template, first)
        self.attempts.append(attempt)
        return _result(self.plan, template, attempt.trials, self.store)

    def _best(self, results: Sequence[SettingResult], otherwise: Template | None = None) -> Template:
        """The best setting; of equal ones the first."""
        found = min(results, key=lambda each: each.rank(self.direction))
        same = [each for each in results if each.rank(self.direction) == found.rank(self.direction)]
        return next((each.template for each in same if each.template is otherwise), found.template)

    def _around(self, best: Template) -> list[Template]:
        """A setting and those with the values next to its own, key by key; the values grow beyond an end."""
        self._beyond(best)
        found = [best]
        for key in self.keys:
            values = self.grid[key]
            place = values.index(best.values[key])
            near = [values[at] for at in (place - 1, place + 1) if 0 <= at < len(values)]
            found += filter(None, (self._template(best, key, value) for value in near))
        return found

    def _beyond(self, best: Template) -> list[Template]:
        """The settings with a new value, twice or half of an end, of each key of which the best one lies at that end.

        None where an arm cannot have it, or its values have grown often enough.
        """
        found = []
        for key in self.keys:
            for end, factor in ((0, 0.5), (-1, 2.0)):
                value = number(self.grid[key][end])
                if best.values[key] != self.grid[key][end] or not value or self.grown[key] >= GROWTH:
                    continue
                new = f"{value * factor if value > 0 else value / factor:.6g}"
                if new not in self.grid[key] and (template := self._template(best, key, new)) is not None:
                    self.grown[key] += 1
                    self.grid[key].insert(0 if end == 0 else len(self.grid[key]), new)
                    found.append(template)
        return found

    def _template(self, like: Template, key: str, value: str) -> Template | None:
        """The template with another value of a key, made once; None where the arm cannot have it, which is noted."""
        setting = tuple(f"{name}={value if name == key else own}" for name, own in like.values.items())
        if setting not in self.known and (self.where, setting) not in self.refused:
            try:
                self.known[setting] = like.with_setting(setting, self.plan.composer)
            except UsageError as error:
                self.refused[self.where, setting] = str(error)
        return self.known.get(setting)

    def _require_told_apart(self, first: Sequence[SettingResult]) -> None:
        """Refuse a metric that is the same with several of the best settings, naming one that is not."""
        metric = self.plan.spec.tuned_by
        chosen = self._best(first)
        best = next(each for each in first if each.template is chosen)
        same = [each for each in first if each.values == best.values and each.lost == best.lost]
        if len(same) < 2:
            return
        found = [self.store.read(self.plan.attempt(each.template, True).trials[0].id) for each in same]
        others = [record.metrics for record in found if record is not None]
        names = [name for name in (others[0] if others else {}) if name.startswith("val/") and name != metric]
        apart = [name for name in names if len({each.get(name) for each in others}) == len(others)]
        ahead = [name for name in apart if name in self.plan.spec.metrics or name == "val/loss"]
        remedy = (
            f"put `metric: {(ahead or apart)[0]}` into it, which tells them apart"
            if apart
            else "choose a larger `first_stage`"
        )
        raise UsageError(
            f"`tune` must choose by a metric that tells settings apart, but after the first stage {metric} is "
            f"{number_format.number(best.values[0], 4)} with {len(same)} settings of {arm_name(*self.where)} "
            f"({'; '.join(each.template.text for each in same)}); {remedy}"
        )


def _ordered(values: Iterable[str]) -> list[str]:
    """Different values by their size."""
    return sorted(dict.fromkeys(values), key=lambda each: number(each) or 0.0)


def choose(plan: Plan, store: Store) -> dict[ArmCondition, Choice]:
    """The best setting of every arm whose tuning trials all have their result.

    A setting with fewer diverged trials is better than one with a better mean. Of equal ones the first in the study
    file's order is taken. An arm of which some tuning trial has no result gets no setting, and so no reported trials.

    Raises:
        UsageError: when no trial says which direction of the metric is good.
    """
    by_arm: dict[ArmCondition, list[SettingResult]] = {}
    for each in plan.tuning:
        found = _result(plan, each.template, each.trials, store)
        by_arm.setdefault(each.template.arm_condition, []).append(found)
    direction = _direction_of([store.read(trial.id) for trial in plan.tuning_trials], plan.spec.tuned_by)
    return {
        arm: _choice(min(results, key=lambda each: each.rank(direction)), results)
        for arm, results in by_arm.items()
        if not any(each.missing for each in results)
    }


def _result(plan: Plan, template: Template, trials: Sequence[Trial], store: Store) -> SettingResult:
    found = [store.read(trial.id) for trial in trials]
    ended = [record for record in found if record is not None and record.final]
    metric = plan.spec.tuned_by
    values = tuple(record.metrics[metric] for record in ended if metric in record.metrics)
    return SettingResult(template, values, len(ended) - len(values), len(trials) - len(ended))


def _direction_of(found: Iterable[Record | None], metric: str) -> str:
    """The good direction of a metric, as records say; `lower` where every trial diverged."""
    finished = [record for record in found if record is not None and record.status == records.FINISHED]
    directions = {record.directions[metric] for record in finished if metric in record.directions}
    if finished and len(directions) != 1:
        known = ", ".join(name for name in finished[0].directions if name.startswith("val/"))
        raise UsageError(
            f"`tune` chooses by {metric}, but no trial says which direction of it is good; those known are {known}"
        )
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
