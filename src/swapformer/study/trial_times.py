"""The time that trials will take on this machine, by records of those that ran here, or by a step timed now."""

from __future__ import annotations

import math
import platform
from collections.abc import Mapping
from functools import cached_property
from statistics import fmean

from swapformer.results.arms import ArmCondition
from swapformer.results.record import Record
from swapformer.results.store import Store
from swapformer.study.plan import Plan, Template

NEAR = 3.0
"""How many times more or fewer operations a step of another trial may have, for its time to say anything."""
LOOKED_AT = 200
"""Trials of other studies that are looked at for their times."""
QUICK = 2e10
"""Operations of a step that is timed where no trial was run here: a second or less."""


def _same(one: Template, other: Template) -> bool:
    return (one.arm_condition, one.setting) == (other.arm_condition, other.setting)


class TrialTimes:
    """Seconds of a trial on this machine, from the records of trials that were run here.

    First those of the same arm; then, of this study's other arms and of the newest other trials in the store, that
    whose steps have the most similar number of operations: its seconds for a step, times the number of steps. Where
    there is none, a step of the baseline is timed, if it is quick.
    """

    def __init__(self, plan: Plan, store: Store, operations: Mapping[ArmCondition, float]) -> None:
        self._plan, self._store, self._operations = plan, store, operations
        self._host, self._device = platform.node(), plan.composer.environment_class(plan.shared_config)

    def seconds(self, template: Template) -> float:
        """The seconds of one trial; nan where nothing that was run here is like it."""
        if own := [record.seconds for record in self._of(template)]:
            return fmean(own)
        steps = int(template.config["budget"]["steps"])
        wanted = self._operations.get(template.arm_condition, math.nan) / max(steps, 1)
        if not wanted > 0 or not steps:
            return math.nan
        near = [(abs(math.log(size / wanted)), pace, size) for size, pace in self._paces if size > 0]
        distance, pace, size = min(near, default=(math.inf, math.nan, math.nan))
        return pace * steps * max(1.0, wanted / size) if distance <= math.log(NEAR) else math.nan

    def _of(self, template: Template) -> list[Record]:
        tuning = [trial for each, trials in self._plan.tuning if _same(each, template) for trial in trials]
        trials = [*self._plan.trials_of(template), *tuning]
        records = [self._store.peek(trial.id) for trial in trials] if self._store.exists else []
        return [record for record in records if record is not None and self._here(record)]

    def _here(self, record: Record) -> bool:
        same = all(record.environment.get(key) == value for key, value in self._device.items())
        return record.final and same and record.machine.get("host") == self._host and record.steps > 0

    @cached_property
    def _paces(self) -> list[tuple[float, float]]:
        """(operations of a step, seconds of a step) of what was run here."""
        own = [
            (self._operations.get(each.arm_condition, math.nan) / record.steps, record.seconds / record.steps)
            for each in self._plan.one_each
            for record in self._of(each)
        ]
        if own:
            return own
        if not self._store.exists:
            return self._timed()
        # Of others 6 operations for each parameter and token are near enough: they choose a trial to compare with.
        newest = sorted(self._store.ids(), key=self._store.age)[:LOOKED_AT]
        others = [record for trial in newest if (record := self._store.peek(trial)) is not None and self._here(record)]
        found = [
            (6.0 * record.parameters.get("active", 0) * record.tokens / record.steps, record.seconds / record.steps)
            for record in others
        ]
        return found or self._timed()

    def _timed(self) -> list[tuple[float, float]]:
        """(operations, seconds) of a step of the baseline, timed here."""
        config, where = self._plan.shared_config, (self._plan.spec.baseline, next(iter(self._plan.spec.conditions)))
        steps = int(config["budget"]["steps"])
        operations = self._operations.get(where, math.nan) / max(steps, 1)
        if self._device.get("device") != "cpu" or not 0 < operations <= QUICK:
            return []
        seconds = self._plan.composer.seconds_of_a_step(config)
        return [(operations, seconds)] if math.isfinite(seconds) else []
