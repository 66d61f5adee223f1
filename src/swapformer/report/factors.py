"""Main effects and interactions of a grid: does a difference change with the conditions?"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from swapformer.report import formats
from swapformer.report.design import Values
from swapformer.report.estimates import FloatArray
from swapformer.report.evidence import Evidence
from swapformer.report.statistics import t_interval


@dataclass(frozen=True)
class Effect:
    """A mean over seeds with its 95 % t interval, not corrected for several comparisons."""

    value: float
    lower: float
    upper: float
    n: int

    @property
    def text(self) -> str:
        """`+0.143 [+0.121, +0.165]`."""
        places = formats.places_for(self.value, self.lower, self.upper)
        interval = formats.interval(self.lower, self.upper, places, signed=True)
        return f"{formats.number(self.value, places, signed=True)} {interval}" if self.n else formats.DASH


@dataclass(frozen=True)
class ArmEffects:
    """An arm's difference to the baseline: over all conditions, and how much more it is at one level than at the first.

    `interactions` has one entry for each level but the first of each factor, as `Effects.contrasts` names them.
    """

    arm: str
    main: Effect
    interactions: tuple[Effect, ...]


@dataclass(frozen=True)
class Term:
    """A line of the analysis of variance: an effect (or the interaction of several) against its error over seeds."""

    name: str
    f: float
    freedom: tuple[float, float]
    p: float


@dataclass(frozen=True)
class Effects:
    """What the factors of a grid do to one metric; `seeds` stand behind `terms`."""

    metric: str
    contrasts: tuple[str, ...]
    arms: tuple[ArmEffects, ...]
    terms: tuple[Term, ...]
    seeds: int


def effects(
    metric: str, baseline: str, conditions: Mapping[str, Values], evidence: Mapping[str, Evidence]
) -> Effects | None:
    """Main effects and interactions of one metric; None where no arm has its values in all conditions."""
    arms = [arm for arm in next(iter(evidence.values())).arms if all(arm in each.arms for each in evidence.values())]
    if baseline not in arms or len(arms) < 2:
        return None
    factors = list(next(iter(conditions.values())))
    levels = {factor: list(dict.fromkeys(values[factor] for values in conditions.values())) for factor in factors}
    contrasts = [(factor, level) for factor in factors for level in levels[factor][1:]]
    rows = []
    for arm in arms:
        if arm == baseline:
            continue
        differences = _differences(arm, baseline, metric, evidence)
        inner = []
        for factor, level in contrasts:
            at, first = (
                np.array([values[factor] == one for values in conditions.values()])
                for one in (level, levels[factor][0])
            )
            inner.append(_effect(differences[:, at].mean(axis=1) - differences[:, first].mean(axis=1)))
        rows.append(ArmEffects(arm, _effect(differences.mean(axis=1)), tuple(inner)))
    if not any(row.main.n for row in rows):
        return None
    terms, seeds = _anova(arms, metric, conditions, evidence)
    names = tuple(f"{factor}: {level} − {levels[factor][0]}" for factor, level in contrasts)
    return Effects(metric, names, tuple(rows), terms, seeds)


def _differences(arm: str, baseline: str, metric: str, evidence: Mapping[str, Evidence]) -> FloatArray:
    """arm - baseline [seeds, conditions] of the seeds that are paired in all conditions."""
    columns = []
    for each in evidence.values():
        pairs = each.pairs(arm, baseline, metric)
        columns.append(dict(zip(pairs.seeds, pairs.x - pairs.y, strict=True)))
    seeds = [seed for seed in columns[0] if all(seed in column for column in columns)]
    return np.array([[column[seed] for column in columns] for seed in seeds], dtype=float).reshape(-1, len(columns))


def _effect(values: FloatArray) -> Effect:
    value = float(values.mean()) if len(values) else math.nan
    return Effect(value, *t_interval(values), len(values))


def _anova(
    arms: Sequence[str], metric: str, conditions: Mapping[str, Values], evidence: Mapping[str, Evidence]
) -> tuple[tuple[Term, ...], int]:
    """The analysis of variance with repeated measures (every factor varies within a seed), and how many seeds it had.

    Seeds that lack a value anywhere are left out; with fewer than two there is nothing to analyse.
    """
    factors = list(next(iter(conditions.values())))
    frames = []
    for condition, each in evidence.items():
        for arm in arms:
            values = each.values.get((arm, metric), np.full(len(each.seeds), math.nan))
            frame = pd.DataFrame({"value": values, "seed": each.seeds, "f0": arm})
            frames.append(frame.assign(**{f"f{i}": conditions[condition][key] for i, key in enumerate(factors, 1)}))
    data = pd.concat(frames, ignore_index=True)
    whole = data.groupby("seed")["value"].apply(lambda values: bool(np.isfinite(values).all()))
    seeds = [seed for seed, fine in whole.items() if fine]
    if len(seeds) < 2:
        return (), len(seeds)
    from statsmodels.stats.anova import AnovaRM  # late: it takes a second, and few studies have a grid

    names = {f"f{i}": name for i, name in enumerate(["arm", *factors])}
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")  # of divisions where all seeds agree
        table = AnovaRM(data[data["seed"].isin(seeds)], "value", "seed", within=list(names)).fit().anova_table
    terms = [
        Term(" × ".join(names[part] for part in str(key).split(":")), float(f), (float(over), float(under)), float(p))
        for key, f, over, under, p in table.itertuples()
    ]
    return tuple(terms), len(seeds)
