"""Numbers that are derived from a trial's others, one per trial, before any statistics.

    slope: FAMILY                 least squares of log metric@n over log n
    rank_correlation: FAMILY      Kendall's τ of metric@n and n
    first_below: FAMILY, value    the smallest length n whose metric@n is below the value; the largest where none is
    first_above: FAMILY, value    likewise above it
    crossing: [FAMILY, FAMILY]    the smallest length at which the two meet, straight between lengths on log-log axes;
                                  nan where they do not
    ratio: [A, B]                 A / B
    log: A                        the natural logarithm
    time_to: A, value             the step at which the history first reaches the value, min(T, budget): a trial that
                                  never reaches it counts with its whole budget
    stuck: A, value               1 where A is no better than the value, such as the loss of counting; 0 where it is

A mean over seeds of such a number is valid where the number itself has a meaning for one trial.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from swapformer.errors import UsageError, quote, suggest
from swapformer.results.manifest import Manifest
from swapformer.results.moments import INIT, family_of, split_moment

PREFIX = "derived/"
_FAMILIES = ("slope", "rank_correlation", "first_below", "first_above")
_PAIRS = ("crossing", "ratio")
_WITH_VALUE = ("first_below", "first_above", "time_to", "stuck")
WAYS = (*_FAMILIES, "crossing", "ratio", "log", "time_to", "stuck")
Way = Mapping[str, Any]


def parse_derive(raw: object, metrics: Collection[str]) -> dict[str, Way]:
    """The `derive` section of a study file, checked against the study's metrics."""
    if raw is None:
        return {}
    if not isinstance(raw, Mapping):
        raise UsageError(f"`derive` must map names such as {PREFIX}slope to how they are derived, not {quote(raw)}")
    for name, way in raw.items():
        _check(name, way, metrics)
    return dict(raw)


def _check(name: object, way: object, metrics: Collection[str]) -> None:
    if not isinstance(name, str) or not name.removeprefix(PREFIX) or not name.startswith(PREFIX):
        raise UsageError(f"a derived metric's name must begin with {PREFIX}, but {quote(name)} does not")
    kinds = [key for key in way if key in WAYS] if isinstance(way, Mapping) else []
    if not isinstance(way, Mapping) or len(kinds) != 1:
        wanted = f"a mapping with exactly one of {', '.join(WAYS)}"
        raise UsageError(f"`derive` of {name} must be {wanted}, not {quote(way)}")
    (kind,) = kinds
    for key in way:
        if key not in (kind, "direction", *(("value",) if kind in _WITH_VALUE else ())):
            hint = suggest(str(key), (kind, "direction", "value"))
            raise UsageError(f"`derive` of {name} has no key {quote(key)}{hint}")
    bases = {family_of(metric)[0] for metric in metrics}
    known = bases if kind in (*_FAMILIES, "crossing") else set(metrics)
    names = way[kind] if kind in _PAIRS and isinstance(way[kind], list | tuple) else [way[kind]]
    if kind in _PAIRS and len(names) != 2:
        wanted = (
            "metrics, such as [val/loss@64, val/loss@32]" if kind == "ratio" else "families, such as [val/a, val/b]"
        )
        raise UsageError(f"`{kind}` of {name} must be two {wanted}")
    for metric in names:
        if metric not in known:
            hint = suggest(str(metric), known)
            raise UsageError(f"`derive` of {name}: the study does not measure {quote(metric)}{hint}")
    value = way.get("value")
    number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if kind in _WITH_VALUE and not number:
        raise UsageError(f"`{kind}` of {name} needs a finite `value`, but has {quote(value)}")
    if way.get("direction", "lower") not in ("lower", "higher"):
        raise UsageError(f"`direction` of {name} must be lower or higher, not {quote(way['direction'])}")


def ways_of(manifest: Manifest) -> dict[str, Way]:
    """All that is derived in a study: what it says, and the slopes that its claims are about."""
    claimed = [claim["slope"].get("metric") for claim in manifest.claims if isinstance(claim.get("slope"), Mapping)]
    return {**manifest.derive, **{f"slope({family})": {"slope": family} for family in claimed}}


def directions_of(ways: Mapping[str, Way]) -> dict[str, str]:
    """Which way is better, of the derived numbers that have a good direction."""
    known = {
        name: way.get("direction", "lower" if "time_to" in way or "stuck" in way else "") for name, way in ways.items()
    }
    return {name: direction for name, direction in known.items() if direction}


def before_training(ways: Mapping[str, Way]) -> dict[str, Way]:
    """Those of the derived numbers that say nothing of training, so that a trial which diverged has them too."""
    kinds = (*_FAMILIES, *_PAIRS, "log", "stuck")
    inputs = {name: next((way[kind] for kind in kinds if kind in way), ()) for name, way in ways.items()}
    named = {name: [given] if isinstance(given, str) else list(given) for name, given in inputs.items()}
    return {
        name: ways[name]
        for name, metrics in named.items()
        if metrics and all(split_moment(metric)[1] == INIT for metric in metrics)
    }


def derive(
    ways: Mapping[str, Way],
    metrics: Mapping[str, float],
    history: pd.DataFrame,
    directions: Mapping[str, str],
    steps: float,
    problems: list[str],
) -> dict[str, float]:
    """The derived numbers of one finished trial; nan where a number does not exist, left out where its inputs do."""
    found: dict[str, float] = {}
    for name, way in ways.items():
        kind = next(key for key in way if key in WAYS)
        if kind in _FAMILIES:
            points = _family(str(way[kind]), metrics)
            if len(points) < 2:
                problem = f"{name} needs {way[kind]}@n at two lengths or more, but trials have it at {len(points)}"
                problems += [] if problem in problems else [problem]
                continue
            found[name] = _over_lengths(kind, points, float(way.get("value", math.nan)))
        elif kind == "crossing":
            here, there = (dict(_family(str(base), metrics)) for base in way[kind])
            shared = [(n, here[n], there[n]) for n in here if n in there]
            if len(shared) < 2:
                problem = f"{name} needs both of {' and '.join(way[kind])} at two lengths, but has {len(shared)}"
                problems += [] if problem in problems else [problem]
                continue
            found[name] = _crossing(shared)
        elif kind == "time_to":
            found[name] = _time_to(history, str(way[kind]), float(way["value"]), directions, steps)
        else:
            inputs = [metrics.get(str(each)) for each in (way[kind] if kind == "ratio" else [way[kind]])]
            known = [value for value in inputs if value is not None]
            if len(known) == len(inputs) and kind == "stuck":
                value, limit = known[0], float(way["value"])
                better = value > limit if directions.get(str(way[kind])) == "higher" else value < limit
                found[name] = float(not better)
            elif len(known) == len(inputs):
                found[name] = _of_numbers(kind, known)
    return found


def _family(base: str, metrics: Mapping[str, float]) -> list[tuple[float, float]]:
    """(length, value) of all metrics `base@length`, shortest first."""
    split = [(family_of(name), value) for name, value in metrics.items()]
    return sorted((float(n), value) for (family, n), value in split if family == base and n.isdigit())


def _over_lengths(kind: str, points: Sequence[tuple[float, float]], value: float) -> float:
    lengths, values = (np.array(each) for each in zip(*points, strict=True))
    if kind == "slope":
        return float(np.polyfit(np.log(lengths), np.log(values), 1)[0]) if (values > 0).all() else math.nan
    if kind == "rank_correlation":
        return float(stats.kendalltau(lengths, values).statistic)
    there = lengths[values < value] if kind == "first_below" else lengths[values > value]
    return float(there[0] if len(there) else lengths[-1])


def _crossing(points: Sequence[tuple[float, float, float]]) -> float:
    """The length at which two families (length, value, value) first meet."""
    lengths, here, there = (np.array(each) for each in zip(*points, strict=True))
    if not ((here > 0) & (there > 0)).all():
        return math.nan
    x, gap = np.log(lengths), np.log(here) - np.log(there)
    for at in range(len(x)):
        if gap[at] == 0:
            return float(lengths[at])
        if at + 1 < len(x) and gap[at] * gap[at + 1] < 0:
            return math.exp(float(x[at] + (x[at + 1] - x[at]) * gap[at] / (gap[at] - gap[at + 1])))
    return math.nan


def _of_numbers(kind: str, values: Sequence[float]) -> float:
    if kind == "ratio":
        return values[0] / values[1] if values[1] else math.nan
    return math.log(values[0]) if values[0] > 0 else math.nan


def _time_to(history: pd.DataFrame, metric: str, value: float, directions: Mapping[str, str], steps: float) -> float:
    curve = history[history["metric"] == metric]
    reached = curve["value"] >= value if directions.get(metric) == "higher" else curve["value"] <= value
    return float(min(curve.loc[reached, "step"].min(), steps)) if reached.any() else float(steps)
