"""The time that trials will take on this machine, by records of those that ran here, or by a step timed now."""

from __future__ import annotations

import math
import platform
from collections.abc import Callable
from functools import cached_property
from statistics import fmean

from swapformer.results.record import DIVERGED, Record
from swapformer.results.store import Store
from swapformer.study.plan import Plan, Template

QUICK = 2e10
"""Operations of a step that is timed where no trial was run here: a second or less."""


def _same(one: Template, other: Template) -> bool:
    return (one.arm_condition, one.setting) == (other.arm_condition, other.setting)


class TrialTimes:
    """Seconds of a trial on this machine.

    From the records of trials of the same arm that ran here. Else by the pace of this study's other arms, in seconds
    for an operation, or of a step of the baseline that is timed now, if it is quick.
    """

    def __init__(self, plan: Plan, store: Store, operations: Callable[[Template], float]) -> None:
        self._plan, self._store, self._operations = plan, store, operations
        self._host, self._device = platform.node(), plan.composer.environment_class(plan.shared_config)

    def seconds(self, template: Template) -> float:
        """The seconds of one trial; nan where nothing that was run here is like it."""
        if own := self._whole(template):
            return fmean(own)
        return self._operations(template) * self._pace

    def _whole(self, template: Template) -> list[float]:
        """Seconds of whole trials; one that diverged early counts as if it had gone on."""
        steps = int(template.config["budget"]["steps"])
        return [
            record.seconds * (steps / record.steps if record.status == DIVERGED else 1.0)
            for record in self._of(template)
        ]

    def _of(self, template: Template) -> list[Record]:
        whole = (each for each in self._plan.tuning if each.share == 1 and _same(each.template, template))
        tuning = [trial for each in whole for trial in each.trials]
        trials = [*self._plan.trials_of(template), *tuning]
        records = [self._store.peek(trial.id) for trial in trials] if self._store.exists else []
        return [record for record in records if record is not None and self._here(record)]

    def _here(self, record: Record) -> bool:
        same = all(record.environment.get(key) == value for key, value in self._device.items())
        return record.final and same and record.machine.get("host") == self._host and record.steps > 0

    @cached_property
    def _pace(self) -> float:
        """Seconds for an operation of training; nan where it is not known."""
        paces = [
            seconds / operations
            for each in self._plan.one_each
            if 0 < (operations := self._operations(each)) < math.inf
            for seconds in self._whole(each)
        ]
        return fmean(paces) if paces else self._timed()

    def _timed(self) -> float:
        """Seconds for an operation, from a step of the baseline."""
        config, where = self._plan.shared_config, (self._plan.spec.baseline, next(iter(self._plan.spec.conditions)))
        first = next((each for each in self._plan.templates if each.arm_condition == where), None)
        operations = math.nan if first is None else self._operations(first) / max(int(config["budget"]["steps"]), 1)
        if self._device.get("device") != "cpu" or not 0 < operations <= QUICK:
            return math.nan
        return self._plan.composer.seconds_of_a_step(config) / operations
