"""Statistics of a grid: the verdict on a claim over all conditions, main effects and interactions."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import combinations
from typing import Literal

import numpy as np
from scipy import linalg, stats

from swapformer.report import number_format
from swapformer.report.statistics.claims import Claim
from swapformer.report.statistics.estimates import FloatArray, OpenEstimate, mean_estimate
from swapformer.report.statistics.evidence import BoolArray, Evidence
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
class Effect:
    """A mean over seeds with its 95 % interval.

    It is not corrected for several comparisons, and open on a side that would flatter an arm that lost trials.
    """

    value: float
    lower: float
    upper: float
    n: int

    @property
    def text(self) -> str:
        """`+0.143 [+0.121, +0.165]`; a dash where no seed has it."""
        if not self.n:
            return number_format.DASH
        return number_format.difference_text(self.value, (self.lower, self.upper))


@dataclass(frozen=True)
class ArmEffects:
    """An arm's difference to the baseline: over all conditions, and how much more it is at one level than at the first.

    `interactions` has one entry for each level but the first of each factor, as `GridEffects.contrasts` names them.
    """

    arm: str
    main: Effect
    interactions: tuple[Effect, ...]


@dataclass(frozen=True)
class VarianceTerm:
    """One line of the analysis of variance: an effect or an interaction against its error over seeds.

    `freedom` and `p` are corrected by `epsilon`, for variances that differ between the contrasts of a term.
    """

    name: str
    f: float
    freedom: tuple[float, float]
    p: float
    epsilon: float


@dataclass(frozen=True)
class GridEffects:
    """The effects of a grid's factors on one metric; `terms` are computed from so many `seeds`.

    `impossible`: the arms that cannot be built in some condition. `few`: those with too few seeds for `terms`.
    """

    metric: str
    contrasts: tuple[str, ...]
    arms: tuple[ArmEffects, ...]
    impossible: tuple[str, ...]
    terms: tuple[VarianceTerm, ...]
    few: tuple[str, ...]
    seeds: int


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
        sides = np.array([each.flattering_limits(arm, baseline, metric) for each in evidence.values()])
        over, first = np.ones(len(evidence), dtype=bool), np.zeros(len(evidence), dtype=bool)
        inner = [_effect(differences, sides, at[each], at[each[0], levels[each[0]][0]]) for each in contrasts]
        rows.append(ArmEffects(arm, _effect(differences, sides, over, first), tuple(inner)))
    if not any(row.main.n for row in rows):
        return None
    terms, few, seeds = _anova(arms, metric, conditions, evidence)
    names = tuple(f"{factor}: {level} − {levels[factor][0]}" for factor, level in contrasts)
    impossible = tuple(arm for arm in known if arm not in arms)
    return GridEffects(metric, names, tuple(rows), impossible, terms, few, seeds)


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


def _effect(differences: FloatArray, sides: BoolArray, here: BoolArray, there: BoolArray) -> Effect:
    """The mean difference in the conditions `here`, less that in those `there`, if any.

    `sides` [conditions, 2]: whether the limits below and above are open in a condition.
    """
    values = differences[:, here].mean(axis=1) - (differences[:, there].mean(axis=1) if there.any() else 0.0)
    below, above = (sides[here, side].any() or sides[there, 1 - side].any() for side in (0, 1))
    estimate = OpenEstimate(mean_estimate(values), bool(below), bool(above))
    return Effect(estimate.value, estimate.lower(0.025), estimate.upper(0.025), len(values))


def _anova(
    arms: Sequence[str], metric: str, conditions: Mapping[str, Values], evidence: Mapping[str, Evidence]
) -> tuple[tuple[VarianceTerm, ...], tuple[str, ...], int]:
    """The analysis of variance with repeated measures (every factor varies within a seed), the arms that had too few
    seeds for it, and how many seeds it had.

    A seed counts that has its values everywhere, in one environment class; an arm that has fewer than two such seeds by
    itself is left out. F = n·|m|² / tr S, for the means m and the covariance S over n seeds of a term's k orthonormal
    contrasts; its degrees of freedom are εk and εk(n - 1), with ε = (tr S)² / (k tr S²) of Greenhouse and Geisser 1959
    (doi 10.1007/BF02289823), where ε = 1 says that all contrasts vary alike.
    """
    kept = [arm for arm in arms if _whole([arm], metric, evidence).sum() >= 2]
    few = tuple(arm for arm in arms if arm not in kept)
    whole = _whole(kept, metric, evidence)
    if len(kept) < 2 or whole.sum() < 2:
        return (), few, int(whole.sum())
    levels = {"arm": kept, **_levels(conditions)}
    order = sorted(
        conditions, key=lambda name: [levels[factor].index(value) for factor, value in conditions[name].items()]
    )
    cells = [evidence[name].values[arm, metric][whole] for arm in kept for name in order]
    values = np.stack(cells, axis=1)
    terms = [
        _term(" × ".join(names), values, [(len(of), name in names) for name, of in levels.items()])
        for size in range(1, len(levels) + 1)
        for names in combinations(levels, size)
    ]
    return tuple(terms), few, int(whole.sum())


def _whole(arms: Sequence[str], metric: str, evidence: Mapping[str, Evidence]) -> BoolArray:
    """The seeds with a value of every arm in every condition, all in one environment class."""
    nothing = np.full(len(next(iter(evidence.values())).seeds), math.nan)
    rows = [each.values.get((arm, metric), nothing) for each in evidence.values() for arm in arms]
    classes = [each.classes.get(arm, np.full(len(nothing), "")) for each in evidence.values() for arm in arms]
    alike = np.array([len(set(column)) == 1 for column in zip(*classes, strict=True)], dtype=bool)
    return np.asarray(np.isfinite(rows).all(axis=0) & alike, dtype=bool)


def _term(name: str, values: FloatArray, factors: Sequence[tuple[int, bool]]) -> VarianceTerm:
    """A line for values [seeds, cells]; the cells are the product of `factors`: (levels, whether the term has it)."""
    parts = [linalg.helmert(levels) if inside else np.full((1, levels), levels**-0.5) for levels, inside in factors]
    contrasts = values @ reduce(np.kron, parts).T
    n, k = contrasts.shape
    means, spread = contrasts.mean(axis=0), np.atleast_2d(np.cov(contrasts, rowvar=False))
    trace = float(np.trace(spread))
    if trace <= 1e-24 * max(float((values**2).max()), 1e-300):
        return VarianceTerm(name, math.nan, (k, k * (n - 1)), math.nan, 1.0)  # every seed says exactly the same
    epsilon = trace**2 / (k * float((spread**2).sum()))
    f, freedom = n * float(means @ means) / trace, (epsilon * k, epsilon * k * (n - 1))
    return VarianceTerm(name, f, freedom, float(stats.f.sf(f, *freedom)), epsilon)
