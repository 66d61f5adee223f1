"""The spread over seeds of what a study claims about, by its earlier results: what differences its seeds would see."""

from __future__ import annotations

import math
from collections.abc import Mapping
from statistics import median, stdev

from swapformer.errors import UsageError
from swapformer.report.records import Records
from swapformer.report.results_csv import read_results
from swapformer.report.statistics.claims import Claim
from swapformer.results.store import Store
from swapformer.study.manifest import asked
from swapformer.study.plan import Plan
from swapformer.study.spec import Spec, claims_of


def differences_seen(plan: Plan, store: Store, distance: float) -> dict[str, float]:
    """Metric → a distance in standard deviations of a seed's difference, in the metric's units.

    The spread is that of earlier results: those that were published of this study, else those in the store.
    """
    values = _published(plan.spec) or _stored(plan, store)
    spreads: dict[str, list[float]] = {}
    for claim in claims_of(plan.spec):
        spread = _spread(claim, values)
        if len(claim.metrics) == 1 and spread > 0 and math.isfinite(distance):
            spreads.setdefault(claim.metrics[0], []).append(distance * spread)
    return {metric: median(found) for metric, found in spreads.items()}


Values = Mapping[tuple[str, str], Mapping[int, float]]
"""(arm, metric) → seed → value, in the first condition of a grid."""


def _spread(claim: Claim, values: Values) -> float:
    """The standard deviation over seeds of what a claim is about; nan with fewer than three seeds in common."""
    weights = {} if claim.exact else claim.spread_weights()
    known = [values.get(key, {}) for key in weights]
    seeds = set.intersection(*map(set, known)) if known else set()
    sums = [sum(weight * values[key][seed] for key, weight in weights.items()) for seed in seeds]
    return stdev(sums) if len(sums) >= 3 else math.nan


def _published(spec: Spec) -> Values:
    """The published results of this study at this scale; nothing where it does not fit any more."""
    path = None if spec.published is None else spec.published / "results.csv"
    if path is None or not path.is_file():
        return {}
    try:
        records: Records = read_results(path, asked(spec))
    except (UsageError, KeyError, ValueError):
        return {}
    found: dict[tuple[str, str], dict[int, float]] = {}
    first = next(iter(spec.conditions))
    for row in records.metrics.itertuples(index=False):
        if row.condition == first:
            found.setdefault((str(row.arm), str(row.metric)), {})[int(str(row.seed))] = float(str(row.value))
    return found


def _stored(plan: Plan, store: Store) -> Values:
    found: dict[tuple[str, str], dict[int, float]] = {}
    first = next(iter(plan.spec.conditions))
    for each in plan.one_each if store.exists else ():
        for seed, trial in zip(plan.spec.seeds, plan.trials_of(each), strict=False):
            record = store.peek(trial.id)
            if each.condition == first and record is not None and record.final:
                for metric, value in record.metrics.items():
                    found.setdefault((each.arm, metric), {})[seed] = value
    return found
