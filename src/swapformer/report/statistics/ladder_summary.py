"""A ladder in a report, metric by metric: what each arm changes over the rungs, the baseline's law, and speed-ups."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from swapformer.report import number_format
from swapformer.report.statistics.estimates import Estimate, FloatArray, exp, opened
from swapformer.report.statistics.evidence import Evidence, join
from swapformer.report.statistics.ladder import ArmLadder, arm_ladder
from swapformer.report.statistics.ladder_effects import ArmEffect, Interval, arm_effect
from swapformer.report.statistics.scaling_law import ScalingLaw, Unfit
from swapformer.results.arms import RUNG, Values, arm_name
from swapformer.results.manifest import Manifest


@dataclass(frozen=True)
class ArmCourse:
    """An arm's speed-up at each rung and at the next size, and the slope of its logarithm over that of the size."""

    arm: str
    rungs: Mapping[str, Interval]
    next_size: Interval
    slope: Interval


@dataclass(frozen=True)
class LadderSummary:
    """A ladder in one metric.

    `law`: the baseline's, None where it is refused, which `notes` say. `computation`: of the baseline's trainings, by
    rung. `means`: arm → mean at each rung. `effects`: of the other arms.
    """

    metric: str
    baseline: str
    rungs: tuple[str, ...]
    law: ScalingLaw | None
    computation: Mapping[str, float]
    costs: Mapping[tuple[str, str], float]
    means: Mapping[str, Mapping[str, float]]
    arms: tuple[ArmCourse, ...]
    next_computation: float
    notes: tuple[str, ...]
    effects: tuple[ArmEffect, ...] = ()

    def lines(self) -> list[str]:
        """The summary in sentences."""
        found = [each.text(self.baseline, self.metric) for each in self.effects]
        if self.law is not None:
            found.append(f"Law of {self.baseline} in {self.metric} over C operations: {self.law.text}.")
        for each in self.arms:
            ends = list(each.rungs.items())
            (smallest, first), (largest, last) = ends[0], ends[-1]
            found.append(
                f"{each.arm}: effective speed-up over {self.baseline} in {self.metric} {_text(first)} with {smallest}, "
                f"{_text(last)} with {largest} (slope of its logarithm {_text(each.slope)}); "
                f"{_text(each.next_size)} is expected at the next size, of "
                f"{number_format.scaled(self.next_computation)} operations."
            )
        return [*found, *(f"Ladder in {self.metric}: {note}." for note in self.notes)]


def ladder_summaries(manifest: Manifest, evidence: Mapping[str, Evidence]) -> list[LadderSummary]:
    """The ladders of a study: one for each of its losses and each combination of the other factors."""
    if not is_ladder(manifest.conditions):
        return []
    whole = join(evidence)
    found = []
    for names in _parallel(manifest.conditions):
        for metric in manifest.metrics:
            if whole.directions.get(metric) == "lower" and any(
                len(whole.finite_values(arm_name(manifest.baseline, at), metric)) for at in names
            ):
                found.append(_summary(metric, manifest, names, whole))
    return found


def is_ladder(conditions: Mapping[str, Values]) -> bool:
    """Whether the conditions of a study are rungs."""
    return all(RUNG in values for values in conditions.values())


def _parallel(conditions: Mapping[str, Values]) -> list[list[str]]:
    """The conditions that differ only in size and budget."""
    groups: dict[tuple[tuple[str, str], ...], list[str]] = {}
    for name, values in conditions.items():
        rest = tuple((key, value) for key, value in values.items() if key != RUNG)
        groups.setdefault(rest, []).append(name)
    return list(groups.values())


def _summary(metric: str, manifest: Manifest, names: Sequence[str], whole: Evidence) -> LadderSummary:
    baseline = manifest.baseline
    costs = {(arm, at): whole.operations.get(arm_name(arm, at), math.nan) for arm in manifest.arms for at in names}
    order = sorted(names, key=lambda at: (math.isnan(costs[baseline, at]), costs[baseline, at]))
    law, arms, notes, after = None, list[ArmCourse](), list[str](), math.nan
    try:
        own = arm_ladder(whole, baseline, baseline, metric, names)
        law, after = own.law, own.next_computation
    except Unfit as error:
        notes.append(f"no law of {baseline}: {error}")
    for arm in (other for other in manifest.arms if other != baseline and law is not None):
        try:
            arms.append(_course(arm, baseline, metric, arm_ladder(whole, arm, baseline, metric, names), whole))
        except Unfit as error:
            notes.append(f"no speed-up of {arm}: {error}")
    means = {arm: {at: _mean(whole.finite_values(arm_name(arm, at), metric)) for at in order} for arm in manifest.arms}
    computation = {at: costs[baseline, at] for at in order}
    others = [arm for arm in manifest.arms if arm != baseline]
    effects = [arm_effect(arm, baseline, metric, computation, whole) for arm in others]
    return LadderSummary(
        metric, baseline, tuple(order), law, computation, costs, means, tuple(arms), after, tuple(notes),
        tuple(each for each in effects if each is not None),
    )  # fmt: skip


def _course(arm: str, baseline: str, metric: str, ladder: ArmLadder, whole: Evidence) -> ArmCourse:
    """The course of an arm over size; limits that would flatter an arm that lost trials are open."""
    lost = [any(whole.lost(arm_name(who, at), metric).any() for at in ladder.rungs) for who in (arm, baseline)]

    def interval(estimate: Estimate, both: bool = False) -> Interval:
        found = opened(estimate, *([any(lost)] * 2 if both else lost))
        return found.value, *found.limits

    def factor(logs: Interval) -> Interval:
        return exp(logs[0]), exp(logs[1]), exp(logs[2])

    rungs = {at: factor(interval(ladder.at_rung(index))) for index, at in enumerate(ladder.rungs)}
    slope, beyond = interval(ladder.trend(), both=True), interval(ladder.next_size(), both=True)
    return ArmCourse(arm, rungs, factor(beyond), slope)


def _mean(values: FloatArray) -> float:
    return float(values.mean()) if len(values) else math.nan


def _text(interval: Interval) -> str:
    value, low, high = interval
    if not math.isfinite(value):
        return "beyond the law" if value == math.inf else "unknown"
    if not (math.isfinite(low) and math.isfinite(high)) or high > 1e6:
        return f"{value:.3g}"
    return f"{number_format.value_text(value, low, high)} {number_format.limits_text(value, low, high)}"
