"""Statistics of a grid: the verdict on a claim over all conditions, main effects and interactions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from swapformer.report.statistics.arm_summary import Comparison
from swapformer.report.statistics.claim_fields import difference
from swapformer.report.statistics.claims import Claim
from swapformer.report.statistics.estimates import BoolArray, FloatArray, mean_estimate, opened
from swapformer.report.statistics.evidence import Evidence
from swapformer.report.statistics.verdicts import Verdict
from swapformer.results.arms import Values

Overall = Literal["supported", "refuted", "depends", "undecided"]
OUTCOMES: tuple[Overall, ...] = ("supported", "refuted", "depends", "undecided")


@dataclass(frozen=True)
class GridVerdict:
    """The verdict on one claim over all conditions of a grid, made of the verdict in each condition.

    The verdicts share one family-wise error, so what they say together is as sure as each of them.
    """

    claim: Claim
    verdicts: Mapping[str, Verdict]

    @property
    def outcome(self) -> Overall:
        """`depends`: supported in one condition and refuted in another; `undecided`: open in any, unless it depends."""
        outcomes = {verdict.outcome for verdict in self.verdicts.values()}
        if {"supported", "refuted"} <= outcomes:
            return "depends"
        return outcomes.pop() if len(outcomes) == 1 else "undecided"

    @property
    def text(self) -> str:
        """Whether the verdict holds in all conditions, as a sentence; empty where there is no grid."""
        if len(self.verdicts) < 2:
            return ""
        by_outcome: dict[str, list[str]] = {}
        for condition, verdict in self.verdicts.items():
            by_outcome.setdefault(verdict.outcome, []).append(condition)
        if len(by_outcome) == 1:
            where = "both" if len(self.verdicts) == 2 else f"all {len(self.verdicts)}"
            return f"{next(iter(by_outcome)).capitalize()} in {where} conditions."
        parts = [f"{outcome} with {'; '.join(by_outcome[outcome])}" for outcome in OUTCOMES if outcome in by_outcome]
        held = "The verdict depends on the condition: " if self.outcome == "depends" else "Not decided everywhere: "
        return f"{held}{', '.join(parts)}."


def grid_verdicts(claims: Sequence[Claim], verdicts: Mapping[str, Sequence[Verdict]]) -> list[GridVerdict]:
    """The verdict on each claim over the conditions in which it was judged."""
    return [
        GridVerdict(claim, {at: each for at, found in verdicts.items() for each in found if each.claim is claim})
        for claim in claims
    ]


@dataclass(frozen=True)
class ArmEffects:
    """An arm's difference to the baseline: over all conditions, and how much more it is at one level than at the first.

    `interactions` has one entry for each level but the first of each factor, as `GridEffects.contrasts` names them.
    """

    arm: str
    main: Comparison
    interactions: tuple[Comparison, ...]


@dataclass(frozen=True)
class GridEffects:
    """The effects of a grid's factors on one metric. `impossible`: the arms that cannot be built in some condition."""

    metric: str
    contrasts: tuple[str, ...]
    arms: tuple[ArmEffects, ...]
    impossible: tuple[str, ...]


def grid_effects(
    metric: str, baseline: str, conditions: Mapping[str, Values], evidence: Mapping[str, Evidence]
) -> GridEffects | None:
    """Main effects and interactions of one metric; None where no arm has its values in all conditions."""
    known = list(dict.fromkeys(arm for each in evidence.values() for arm in each.arms))
    arms = [arm for arm in known if all(arm in each.arms for each in evidence.values())]
    if baseline not in arms or len(arms) < 2:
        return None
    levels = _levels(conditions)
    contrasts = [(factor, level) for factor, of in levels.items() for level in of[1:]]
    at = {
        (factor, level): np.array([values[factor] == level for values in conditions.values()])
        for factor, of in levels.items()
        for level in of
    }
    rows = []
    for arm in arms:
        if arm == baseline:
            continue
        differences = _differences(arm, baseline, metric, evidence)
        sides = np.array([each.flattering_limits(difference(arm, baseline, metric)) for each in evidence.values()])
        over, first = np.ones(len(evidence), dtype=bool), np.zeros(len(evidence), dtype=bool)
        inner = [_effect(differences, sides, at[each], at[each[0], levels[each[0]][0]]) for each in contrasts]
        rows.append(ArmEffects(arm, _effect(differences, sides, over, first), tuple(inner)))
    if not any(row.main.pairs for row in rows):
        return None
    names = tuple(f"{factor}: {level} − {levels[factor][0]}" for factor, level in contrasts)
    impossible = tuple(arm for arm in known if arm not in arms)
    return GridEffects(metric, names, tuple(rows), impossible)


def _levels(conditions: Mapping[str, Values]) -> dict[str, list[str]]:
    """Factor → its levels, both in the order of the study file."""
    factors = next(iter(conditions.values()))
    return {factor: list(dict.fromkeys(values[factor] for values in conditions.values())) for factor in factors}


def _differences(arm: str, baseline: str, metric: str, evidence: Mapping[str, Evidence]) -> FloatArray:
    """arm - baseline [seeds, conditions] of the seeds that are paired in all conditions."""
    columns = []
    for each in evidence.values():
        pairs = each.pairs(arm, baseline, metric)
        columns.append(dict(zip(pairs.seeds, pairs.x - pairs.y, strict=True)))
    seeds = [seed for seed in columns[0] if all(seed in column for column in columns)]
    return np.array([[column[seed] for column in columns] for seed in seeds], dtype=float).reshape(-1, len(columns))


def _effect(differences: FloatArray, sides: BoolArray, here: BoolArray, there: BoolArray) -> Comparison:
    """The mean difference in the conditions `here`, less that in those `there`, if any.

    `sides` [conditions, 2]: whether the limits below and above are open in a condition.
    """
    values = differences[:, here].mean(axis=1) - (differences[:, there].mean(axis=1) if there.any() else 0.0)
    below, above = (sides[here, side].any() or sides[there, 1 - side].any() for side in (0, 1))
    estimate = opened(mean_estimate(values), bool(below), bool(above))
    return Comparison(estimate.value, *estimate.limits, len(values), True, values)
