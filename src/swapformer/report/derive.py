"""Numbers that are derived from a trial's others, one per trial, before any statistics.

    slope: FAMILY                 least squares of log y over log x
    rank_correlation: FAMILY      Kendall's τ of y and x
    first_below: FAMILY, value    the smallest x whose y is below the value; the largest x where none is
    first_above: FAMILY, value    likewise above it
    crossing: [FAMILY, FAMILY]    the smallest length at which the two meet, straight between lengths on log-log axes;
                                  nan where they do not
    ratio: [A, B]                 A / B
    log: A                        the natural logarithm
    time_to: A, value, unit       the evaluated step at which the history first reaches the value, or the tokens,
                                  operations or seconds until then, cut off as `target_times` says; with
                                  `interpolate: true` straight between evaluations. `value: {arm: NAME}` is what the
                                  history of that arm ends at with the same seed
    stuck: A, value               1 where A is no better than the value, 0 where it is; without a value the loss of
                                  counting, which the trial's record holds

A family is a metric at lengths n, `metric@n`; with `over: steps` the history of a metric; with `over: finding` what a
probe found, PROBE/SHAPE: a profile over its layers (`moment`: which) or a curve over its x (`line`: which).
A mean over seeds of such a number is valid where the number itself has a meaning for one trial.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from swapformer.errors import UsageError, quote, suggest
from swapformer.report.families import Points, crossing, of_finding, of_lengths, over_points
from swapformer.report.target_times import UNITS, TargetTime, first_step
from swapformer.results.moments import INIT, family_of, split_moment

if TYPE_CHECKING:
    import pandas as pd

PREFIX = "derived/"
_FAMILIES = ("slope", "rank_correlation", "first_below", "first_above")
_PAIRS = ("crossing", "ratio")
_WITH_VALUE = ("first_below", "first_above", "time_to", "stuck")
WAYS = (*_FAMILIES, "crossing", "ratio", "log", "time_to", "stuck")
SOURCES = ("lengths", "steps", "finding")
LR_KEY = "optim.lr"
Way = Mapping[str, Any]


@dataclass(frozen=True)
class TrialNumbers:
    """What numbers of one trial are derived from.

    `history`: its rows (step, metric, value). `steps`, `tokens`, `operations`, `seconds`: of the whole training, nan
    where they are not known. `baselines`: metric → the loss of `guessing` and of `counting`. `findings`: PROBE/SHAPE →
    what a probe found. `targets`: derived name → the value that a time is until, where that is what an arm came to.
    """

    metrics: Mapping[str, float]
    history: pd.DataFrame
    directions: Mapping[str, str]
    steps: float
    tokens: float = math.nan
    operations: float = math.nan
    seconds: float = math.nan
    baselines: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    findings: Mapping[str, Any] = field(default_factory=dict)
    targets: Mapping[str, float] = field(default_factory=dict)


def parse_derive(raw: object, metrics: Collection[str], arms: Collection[str] = ()) -> dict[str, Way]:
    """The `derive` section of a study file, checked against the study's metrics, its arms and what stands before."""
    if raw is None:
        return {}
    if not isinstance(raw, Mapping):
        raise UsageError(f"`derive` must map names such as {PREFIX}slope to how they are derived, not {quote(raw)}")
    known = list(metrics)
    for name, way in raw.items():
        _check(name, way, known, arms)
        known.append(name)
    return dict(raw)


def _check(name: object, way: object, metrics: Collection[str], arms: Collection[str]) -> None:
    if not isinstance(name, str) or not name.removeprefix(PREFIX) or not name.startswith(PREFIX):
        raise UsageError(f"a derived metric's name must begin with {PREFIX}, but {quote(name)} does not")
    if isinstance(way, Mapping) and "mean_of_last" in way:
        raise UsageError(f"`derive` of {name}: `mean_of_last` is gone; callbacks=last averages weights instead")
    kinds = [key for key in way if key in WAYS] if isinstance(way, Mapping) else []
    if not isinstance(way, Mapping) or len(kinds) != 1:
        wanted = f"a mapping with exactly one of {', '.join(WAYS)}"
        raise UsageError(f"`derive` of {name} must be {wanted}, not {quote(way)}")
    (kind,) = kinds
    keys = (kind, "direction", *_keys_of(kind, way))
    for key in way:
        if key not in keys:
            raise UsageError(f"`derive` of {name} has no key {quote(key)}{suggest(str(key), keys)}")
    for key, choices in (("over", SOURCES), ("unit", UNITS), ("direction", ("lower", "higher"))):
        if key in way and way[key] not in choices:
            hint = suggest(str(way[key]), choices)
            raise UsageError(f"`{key}` of {name} must be {' or '.join(choices)}, not {quote(way[key])}{hint}")
    names = way[kind] if kind in _PAIRS and isinstance(way[kind], list | tuple) else [way[kind]]
    if kind in _PAIRS and len(names) != 2:
        wanted = (
            "metrics, such as [val/loss@64, val/loss@32]" if kind == "ratio" else "families, such as [val/a, val/b]"
        )
        raise UsageError(f"`{kind}` of {name} must be two {wanted}")
    if way.get("over") == "finding":
        if not isinstance(way[kind], str) or "/" not in way[kind].strip("/"):
            raise UsageError(f"`{kind}` of {name} must be PROBE/SHAPE, such as gradients/norm, not {quote(way[kind])}")
        names = []
    families = kind in (*_FAMILIES, "crossing") and way.get("over") != "steps"
    known = {family_of(metric)[0] for metric in metrics} if families else set(metrics)
    for metric in names:
        if metric not in known:
            hint = suggest(str(metric), known)
            raise UsageError(f"`derive` of {name}: the study does not measure {quote(metric)}{hint}")
    if not isinstance(way.get("interpolate", True), bool):
        raise UsageError(f"`interpolate` of {name} must be true or false, not {quote(way['interpolate'])}")
    value = way.get("value")
    if kind == "time_to" and isinstance(value, Mapping):
        if list(value) != ["arm"] or value["arm"] not in arms:
            hint = suggest(str(value.get("arm")), arms)
            raise UsageError(
                f"`value` of {name} must be a number or {{arm: one of the arms}}, not {quote(value)}{hint}"
            )
        return
    number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if (kind in _WITH_VALUE and not number) and not (kind == "stuck" and "value" not in way):
        raise UsageError(f"`{kind}` of {name} needs a finite `value`, but has {quote(value)}")


def _keys_of(kind: str, way: Way) -> Iterable[str]:
    """What may stand in a way of this kind beside its inputs and its direction."""
    yield from ("value",) if kind in _WITH_VALUE else ()
    yield from ("unit", "interpolate") if kind == "time_to" else ()
    yield from ("over",) if kind in _FAMILIES else ()
    yield from ("moment", "line") if way.get("over") == "finding" else ()


class Asked(Protocol):
    """A study as its file or its manifest has it."""

    @property
    def derive(self) -> Mapping[str, Way]: ...

    @property
    def claims(self) -> Sequence[Mapping[str, Any]]: ...


def ways_of(study: Asked) -> dict[str, Way]:
    """All that is derived in a study: what it says, and what its claims are about."""
    found: dict[str, Way] = dict(study.derive)
    for claim in study.claims:
        kinds = claim if isinstance(claim, Mapping) else {}  # what is no claim is refused where claims are parsed
        slope, optimum_of = kinds.get("slope"), kinds.get("optimum")
        if isinstance(slope, Mapping) and "over" in slope:
            found[f"log({slope.get('metric')})"] = {"log": slope.get("metric")}
        elif isinstance(slope, Mapping):
            found[f"slope({slope.get('metric')})"] = {"slope": slope.get("metric")}
        if isinstance(optimum_of, Mapping):
            found[f"capped({optimum_of.get('metric')})"] = {"capped": optimum_of.get("metric")}
    return found


def directions_of(ways: Mapping[str, Way], known: Mapping[str, str] | None = None) -> dict[str, str]:
    """Which way is better, of the derived numbers that have a good direction; `known`: of what they are derived from.

    What a claim takes a logarithm of, or cuts off, is better where the metric is.
    """
    found = {}
    for name, way in ways.items():
        inner = way.get("log", way.get("capped")) if not name.startswith(PREFIX) else None
        own = "lower" if "time_to" in way or "stuck" in way else (known or {}).get(str(inner), "")
        found[name] = way.get("direction", own)
    return {name: direction for name, direction in found.items() if direction}


def before_training(ways: Mapping[str, Way]) -> dict[str, Way]:
    """Those of the derived numbers that say nothing of training, so that a trial which diverged has them too."""
    kinds = (*_FAMILIES, *_PAIRS, "log", "stuck")
    inputs = {name: next((way[kind] for kind in kinds if kind in way), ()) for name, way in ways.items()}
    named = {name: [given] if isinstance(given, str) else list(given) for name, given in inputs.items()}
    found: dict[str, Way] = {}
    for name, metrics in named.items():  # in the order of the file, so that what is derived from comes first
        if metrics and all(metric in found or split_moment(metric)[1] == INIT for metric in metrics):
            found[name] = ways[name]
    return found


def censored_of(ways: Mapping[str, Way]) -> frozenset[str]:
    """The derived numbers that are times, cut off at the budget."""
    return frozenset(name for name, way in ways.items() if "time_to" in way)


def exact_of(ways: Mapping[str, Way], exact: Collection[str]) -> frozenset[str]:
    """The metrics that no seed changes: those of `exact`, and what is derived only from them."""
    found = set(exact)
    bases = {family_of(metric)[0] for metric in exact if "@" in metric}
    for name, way in ways.items():
        kind = next((key for key in (*WAYS, "capped") if key in way), "")
        inputs = way[kind] if kind in _PAIRS else [way.get(kind)]
        lengths = kind in (*_FAMILIES, "crossing") and way.get("over", "lengths") == "lengths"
        if kind not in ("time_to", "stuck") and inputs and all(i in found or (lengths and i in bases) for i in inputs):
            found.add(name)
    return frozenset(found)


def target_arms(ways: Mapping[str, Way]) -> dict[str, tuple[str, str]]:
    """Derived name → the arm whose last value is its target, and the metric."""
    asked = {name: way.get("value") for name, way in ways.items() if "time_to" in way}
    return {
        name: (str(value["arm"]), str(ways[name]["time_to"]))
        for name, value in asked.items()
        if isinstance(value, Mapping)
    }


def derive(ways: Mapping[str, Way], trial: TrialNumbers, problems: list[str]) -> dict[str, float]:
    """The derived numbers of one finished trial; nan where a number does not exist, left out where its inputs do.

    A time to a target is cut off at the trial's own horizon here: what is derived from it in turn has no other.
    """
    found: dict[str, float] = {}
    known = dict(trial.metrics)
    for name, way in ways.items():
        value = _derived(name, way, trial, known, problems)
        if value is not None:
            found[name] = known[name] = value
    return found


def _derived(name: str, way: Way, trial: TrialNumbers, known: Mapping[str, float], problems: list[str]) -> float | None:
    kind = next(key for key in (*WAYS, "capped") if key in way)

    def lacking(problem: str) -> float | None:
        problems.extend([problem] if problem not in problems else [])
        return None

    if kind in _FAMILIES:
        points = _points(way, str(way[kind]), trial, known)
        if len(points) < 2:
            what = {"lengths": f"{way[kind]}@n at two lengths", "steps": f"{way[kind]} at two steps"}
            needed = what.get(way.get("over", "lengths"), f"{way[kind]} at two places")
            return lacking(f"{name} needs {needed} or more, but trials have it at {len(points)}")
        return over_points(kind, points, float(way.get("value", math.nan)))
    if kind == "crossing":
        here, there = (dict(of_lengths(str(base), known)) for base in way[kind])
        shared = [(n, here[n], there[n]) for n in here if n in there]
        if len(shared) < 2:
            return lacking(f"{name} needs both of {' and '.join(way[kind])} at two lengths, but has {len(shared)}")
        return crossing(shared)
    if kind == "time_to":
        return time_to(name, way, trial).restricted
    inputs = [known.get(str(each)) for each in (way[kind] if kind == "ratio" else [way[kind]])]
    values = [value for value in inputs if value is not None]
    if len(values) < len(inputs):
        return None
    if kind in ("ratio", "log"):
        return _of_numbers(kind, values)
    which = "counting" if kind == "stuck" else "guessing"
    limit = way.get("value", trial.baselines.get(str(way[kind]), {}).get(which))
    if limit is None:
        return lacking(f"{name} needs the loss of {which}, which records of trials lack for {way[kind]}; say a `value`")
    if kind == "capped":
        return min(values[0], float(limit))
    better = values[0] > float(limit) if trial.directions.get(str(way[kind])) == "higher" else values[0] < float(limit)
    return float(not better)


def losses_of_diverged(ways: Mapping[str, Way], baselines: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    """What a diverged trial counts with where a loss is cut off: the loss of guessing."""
    guessed = {
        name: baselines.get(str(way["capped"]), {}).get("guessing") for name, way in ways.items() if "capped" in way
    }
    return {name: value for name, value in guessed.items() if value is not None}


def optimum(places: Sequence[float], losses: Sequence[float]) -> float:
    """The logarithm of the place with the lowest loss: of the parabola through the lowest and its two neighbours.

    The places are above 0 and grow, and the parabola is in their logarithms. Nan where the lowest loss is at an end, so
    that the optimum may lie beyond it, and where a loss is not known.
    """
    at, y = np.log(places), np.asarray(losses, dtype=float)
    lowest = int(np.argmin(y)) if np.isfinite(y).all() else 0
    if lowest in (0, len(y) - 1):
        return math.nan
    (a, b, c), (low, mid, high) = at[lowest - 1 : lowest + 2], y[lowest - 1 : lowest + 2]
    left, right = (mid - low) / (b - a), (high - mid) / (c - b)  # slopes, the first not above 0, the second not below
    if left == right:
        return math.nan  # three equal losses have no lowest one
    return float((a + b) / 2 - left * (c - a) / 2 / (right - left))


def _points(way: Way, family: str, trial: TrialNumbers, known: Mapping[str, float]) -> Points:
    """The points (x, y) of a family."""
    if way.get("over") == "steps":
        rows = trial.history[trial.history["metric"] == family]
        return [(float(x), float(y)) for x, y in zip(rows["step"], rows["value"], strict=True)]
    if way.get("over") == "finding":
        return of_finding(trial.findings.get(family), way)
    return of_lengths(family, known)


def _of_numbers(kind: str, values: Sequence[float]) -> float:
    if kind == "ratio":
        return values[0] / values[1] if values[1] else math.nan
    return math.log(values[0]) if values[0] > 0 else math.nan


def time_to(name: str, way: Way, trial: TrialNumbers) -> TargetTime:
    """When a trial's history first reaches its target: the share of all steps, tokens, … of its training until then."""
    metric, unit = str(way["time_to"]), str(way.get("unit", "steps"))
    target = trial.targets.get(name, math.nan) if isinstance(way["value"], Mapping) else float(way["value"])
    curve = trial.history[trial.history["metric"] == metric]
    higher = trial.directions.get(metric) == "higher"
    step = first_step(curve, target, higher, bool(way.get("interpolate", False)))
    if unit == "steps":
        return TargetTime(min(step, trial.steps) if math.isfinite(step) else step, trial.steps)
    whole = {"tokens": trial.tokens, "operations": trial.operations, "seconds": trial.seconds}[unit]
    return TargetTime(whole * min(step / trial.steps, 1.0) if math.isfinite(step) else step, whole)
