"""Numbers that are derived from a trial's others, one per trial, before any statistics.

    slope: FAMILY                 least squares of log y over log x
    rank_correlation: FAMILY      Kendall's τ of y and x
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

A family is a metric at lengths n, `metric@n`. A mean over seeds of a derived number is valid where the number itself
has a meaning for one trial.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from swapformer.errors import UsageError, quote, suggest
from swapformer.report.families import crossing, of_lengths, over_points
from swapformer.report.target_times import UNITS, TargetTime, first_step
from swapformer.results.moments import INIT, family_of, split_moment

if TYPE_CHECKING:
    import pandas as pd

PREFIX = "derived/"
LR_KEY = "optim.lr"
GONE = {
    "mean_of_last": "callbacks=last averages weights instead",
    "first_below": "claim a contrast at the lengths in question, such as {arm: {val/loss@64: 1}}, instead",
    "first_above": "claim a contrast at the lengths in question, such as {arm: {val/loss@64: 1}}, instead",
    "over": "a probe gives the numbers of its shapes by name, and `time_to` reads a history",
}
"""Keys that a derived number may no longer have → what to use."""
Way = Mapping[str, Any]


@dataclass(frozen=True)
class TrialNumbers:
    """The measurements of one trial, from which numbers are derived.

    `history`: its rows (step, metric, value). `steps`, `tokens`, `operations`, `seconds`: of the whole training, nan
    where they are not known. `baselines`: metric → the loss of `guessing` and of `counting`. `targets`: derived name →
    the value that a time is until, where that is what an arm came to.
    """

    metrics: Mapping[str, float]
    history: pd.DataFrame
    directions: Mapping[str, str]
    steps: float
    tokens: float = math.nan
    operations: float = math.nan
    seconds: float = math.nan
    baselines: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    targets: Mapping[str, float] = field(default_factory=dict)


class Lacking(Exception):
    """Trials lack something that a derived number needs; the message says what."""


@dataclass(frozen=True)
class Derivation(ABC):
    """The derivation of one number of a trial: a kind of derivation with what a study file says of it."""

    KINDS: ClassVar[tuple[str, ...]]
    """What a study file calls it."""
    KEYS: ClassVar[tuple[str, ...]] = ()
    """What may stand beside its inputs and its direction."""
    IS_ALL: ClassVar[bool] = True
    """Whether its inputs say all of it: where no seed changes them, none changes it."""
    LIKE_INPUTS: ClassVar[bool] = False
    """Whether two of them may be compared only where their inputs may be."""
    DIRECTION: ClassVar[str] = ""
    """Which way is better, where that does not depend on its inputs."""

    name: str
    kind: str
    way: Way

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys that its mapping may have."""
        return (self.kind, "direction", *self.KEYS)

    @property
    def inputs(self) -> list[str]:
        """The metrics or families that it is derived from."""
        given = self.way[self.kind]
        return [str(each) for each in given] if isinstance(given, list | tuple) else [str(given)]

    @property
    def over_lengths(self) -> bool:
        """Whether its inputs are families over lengths."""
        return False

    @property
    def before_training(self) -> bool:
        """Whether it has a value without training where its inputs have."""
        return True

    def check(self, metrics: Collection[str], arms: Collection[str]) -> None:
        """Refuse inputs that the study does not measure, and invalid values."""
        known = {family_of(metric)[0] for metric in metrics} if self.over_lengths else set(metrics)
        for metric in self.inputs:
            if metric not in known:
                hint = suggest(metric, known)
                raise UsageError(f"`derive` of {self.name}: the study does not measure {quote(metric)}{hint}")

    def require_value(self) -> None:
        """Refuse a `value` that is not a finite number."""
        value = self.way.get("value")
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise UsageError(f"`{self.kind}` of {self.name} needs a finite `value`, but has {quote(value)}")

    @abstractmethod
    def number(self, trial: TrialNumbers, known: Mapping[str, float]) -> float | None:
        """The number; nan where it does not exist, None where an input is missing. Raises `Lacking`."""


@dataclass(frozen=True)
class OfFamily(Derivation):
    """One number of the points (x, y) of a family."""

    KINDS = ("slope", "rank_correlation")

    @property
    def over_lengths(self) -> bool:
        return True

    def number(self, trial: TrialNumbers, known: Mapping[str, float]) -> float | None:
        (family,) = self.inputs
        points = of_lengths(family, known)
        if len(points) < 2:
            raise Lacking(f"{self.name} needs {family}@n at two lengths or more, but trials have it at {len(points)}")
        return over_points(self.kind, points)


@dataclass(frozen=True)
class OfPair(Derivation):
    """One number of two families, or of two metrics."""

    KINDS = ("crossing", "ratio")

    @property
    def over_lengths(self) -> bool:
        return self.kind == "crossing"

    def check(self, metrics: Collection[str], arms: Collection[str]) -> None:
        if not isinstance(self.way[self.kind], list | tuple) or len(self.inputs) != 2:
            families, numbers = "families, such as [val/a, val/b]", "metrics, such as [val/loss@64, val/loss@32]"
            raise UsageError(f"`{self.kind}` of {self.name} must be two {families if self.over_lengths else numbers}")
        super().check(metrics, arms)

    def number(self, trial: TrialNumbers, known: Mapping[str, float]) -> float | None:
        if self.over_lengths:
            here, there = (dict(of_lengths(base, known)) for base in self.inputs)
            shared = [(n, here[n], there[n]) for n in here if n in there]
            if len(shared) < 2:
                both = " and ".join(self.inputs)
                raise Lacking(f"{self.name} needs both of {both} at two lengths, but has {len(shared)}")
            return crossing(shared)
        above, below = (known.get(each) for each in self.inputs)
        if above is None or below is None:
            return None
        return above / below if below else math.nan


@dataclass(frozen=True)
class Logarithm(Derivation):
    """The natural logarithm of a metric."""

    KINDS = ("log",)
    LIKE_INPUTS = True

    def number(self, trial: TrialNumbers, known: Mapping[str, float]) -> float | None:
        value = known.get(self.inputs[0])
        return value if value is None else math.log(value) if value > 0 else math.nan


@dataclass(frozen=True)
class Stuck(Derivation):
    """1 where a metric is no better than a value, or than counting symbols; 0 where it is."""

    KINDS = ("stuck",)
    KEYS = ("value",)
    IS_ALL = False
    DIRECTION = "lower"

    def check(self, metrics: Collection[str], arms: Collection[str]) -> None:
        super().check(metrics, arms)
        if "value" in self.way:
            self.require_value()

    def number(self, trial: TrialNumbers, known: Mapping[str, float]) -> float | None:
        (metric,) = self.inputs
        if metric not in known:
            return None
        limit = self.way["value"] if "value" in self.way else baseline(self.name, metric, "counting", trial)
        higher = is_higher_better(self.name, metric, trial)
        return float(not (known[metric] > float(limit) if higher else known[metric] < float(limit)))


@dataclass(frozen=True)
class Capped(Derivation):
    """A loss, but the loss of guessing where it is worse."""

    KINDS = ("capped",)

    @property
    def before_training(self) -> bool:
        return False

    def number(self, trial: TrialNumbers, known: Mapping[str, float]) -> float | None:
        (metric,) = self.inputs
        return min(known[metric], baseline(self.name, metric, "guessing", trial)) if metric in known else None


def baseline(name: str, metric: str, which: str, trial: TrialNumbers) -> float:
    """The loss of `guessing` or of `counting`. Raises `Lacking` where the trial's record has none."""
    found = trial.baselines.get(metric, {}).get(which)
    if found is None:
        raise Lacking(f"{name} needs the loss of {which}, which records of trials lack for {metric}; say a `value`")
    return float(found)


def is_higher_better(name: str, metric: str, trial: TrialNumbers) -> bool:
    """Whether more of a metric is better. Raises `Lacking` where nobody says so, as of what probes report."""
    if metric not in trial.directions and not metric.startswith(("val/", "test/", "train/")):
        raise Lacking(f"{name} needs to know whether more of {metric} is better, which only a task says of its metrics")
    return trial.directions.get(metric) == "higher"


@dataclass(frozen=True)
class TimeTo(Derivation):
    """When a trial's history first reaches a target, cut off at the end of its training."""

    KINDS = ("time_to",)
    KEYS = ("value", "unit", "interpolate")
    IS_ALL = False
    LIKE_INPUTS = True
    DIRECTION = "lower"

    @property
    def before_training(self) -> bool:
        return False

    @property
    def target(self) -> object:
        """The value that is reached, or the arm that it is of."""
        return self.way.get("value")

    def check(self, metrics: Collection[str], arms: Collection[str]) -> None:
        super().check(metrics, arms)
        if not isinstance(self.way.get("interpolate", True), bool):
            raise UsageError(
                f"`interpolate` of {self.name} must be true or false, not {quote(self.way['interpolate'])}"
            )
        if not isinstance(self.target, Mapping):
            self.require_value()
        elif list(self.target) != ["arm"] or self.target["arm"] not in arms:
            hint = suggest(str(self.target.get("arm")), arms)
            wanted = "a number or {arm: one of the arms}"
            raise UsageError(f"`value` of {self.name} must be {wanted}, not {quote(self.target)}{hint}")

    def number(self, trial: TrialNumbers, known: Mapping[str, float]) -> float | None:
        return self.time(trial).restricted

    def time(self, trial: TrialNumbers) -> TargetTime:
        """The share of all steps, tokens, … of a trial's training until its history first reaches the target."""
        (metric,), unit = self.inputs, str(self.way.get("unit", "steps"))
        of_arm = isinstance(self.target, Mapping)
        target = trial.targets.get(self.name, math.nan) if of_arm else float(self.way["value"])
        curve = trial.history[trial.history["metric"] == metric]
        higher = is_higher_better(self.name, metric, trial)
        step = first_step(curve, target, higher, bool(self.way.get("interpolate", False)))
        if unit == "steps":
            return TargetTime(min(step, trial.steps) if math.isfinite(step) else step, trial.steps)
        whole = {"tokens": trial.tokens, "operations": trial.operations, "seconds": trial.seconds}[unit]
        return TargetTime(whole * min(step / trial.steps, 1.0) if math.isfinite(step) else step, whole)


KINDS: Mapping[str, type[Derivation]] = {
    kind: each for each in (OfFamily, OfPair, Logarithm, TimeTo, Stuck) for kind in each.KINDS
}
"""What a study file can derive."""
_KNOWN: Mapping[str, type[Derivation]] = {**KINDS, **dict.fromkeys(Capped.KINDS, Capped)}
"""These, and what only claims derive."""


def derivations(ways: Mapping[str, Way]) -> Iterator[Derivation]:
    """The derivations in the order of the file, so that a number comes after those that it is derived from."""
    for name, way in ways.items():
        kind = next(key for key in way if key in _KNOWN)
        yield _KNOWN[kind](name, kind, way)


def parse_derive(raw: object, metrics: Collection[str], arms: Collection[str] = ()) -> dict[str, Way]:
    """The `derive` section of a study file, checked against the study's metrics, its arms and earlier entries."""
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
    if isinstance(way, Mapping) and (gone := GONE.keys() & way.keys()):
        raise UsageError(f"`derive` of {name}: `{min(gone)}` is gone; {GONE[min(gone)]}")
    kinds = [key for key in way if key in KINDS] if isinstance(way, Mapping) else []
    if not isinstance(way, Mapping) or len(kinds) != 1:
        wanted = f"a mapping with exactly one of {', '.join(KINDS)}"
        raise UsageError(f"`derive` of {name} must be {wanted}, not {quote(way)}")
    found = KINDS[kinds[0]](name, kinds[0], way)
    for key in way:
        if key not in found.keys:
            raise UsageError(f"`derive` of {name} has no key {quote(key)}{suggest(str(key), found.keys)}")
    for key, choices in (("unit", UNITS), ("direction", ("lower", "higher"))):
        if key in way and way[key] not in choices:
            hint = suggest(str(way[key]), choices)
            raise UsageError(f"`{key}` of {name} must be {' or '.join(choices)}, not {quote(way[key])}{hint}")
    found.check(metrics, arms)


def ways_of(derive: Mapping[str, Way], claims: Iterable[object]) -> dict[str, Way]:
    """All that is derived in a study: what it says, and what its claims are about."""
    found: dict[str, Way] = dict(derive)
    for claim in claims:
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
    """The good direction of each derived number that has one; `known`: of what they are derived from.

    What a claim takes a logarithm of, or cuts off, is better where the metric is.
    """
    found = {}
    for each in derivations(ways):
        own = each.DIRECTION
        if not each.name.startswith(PREFIX) and isinstance(each, Logarithm | Capped):
            own = (known or {}).get(each.inputs[0], "")
        if direction := each.way.get("direction", own):
            found[each.name] = direction
    return found


def before_training(ways: Mapping[str, Way]) -> dict[str, Way]:
    """Those of the derived numbers that say nothing of training, so that a trial which diverged has them too."""
    found: dict[str, Way] = {}
    for each in derivations(ways):
        if each.before_training and all(name in found or split_moment(name)[1] == INIT for name in each.inputs):
            found[each.name] = each.way
    return found


def times_of(ways: Mapping[str, Way]) -> dict[str, TimeTo]:
    """The derived numbers that are times to a target, cut off at the budget."""
    return {each.name: each for each in derivations(ways) if isinstance(each, TimeTo)}


def exact_of(ways: Mapping[str, Way], exact: Collection[str], metrics: Iterable[str]) -> frozenset[str]:
    """The metrics that no seed changes: those of `exact`, and what is derived only from them.

    What goes over lengths is exact where every length that is measured, one of `metrics`, is.
    """
    found = set(exact)
    bases = {family_of(metric)[0] for metric in exact if "@" in metric}
    bases -= {family_of(metric)[0] for metric in metrics if "@" in metric and metric not in found}
    for each in derivations(ways):
        known = found | bases if each.over_lengths else found
        if each.IS_ALL and known.issuperset(each.inputs):
            found.add(each.name)
    return frozenset(found)


def target_arms(ways: Mapping[str, Way]) -> dict[str, tuple[str, str]]:
    """Derived name → the arm whose last value is its target, and the metric."""
    return {
        name: (str(each.target["arm"]), each.inputs[0])
        for name, each in times_of(ways).items()
        if isinstance(each.target, Mapping)
    }


def derive(ways: Mapping[str, Way], trial: TrialNumbers, problems: list[str]) -> dict[str, float]:
    """The derived numbers of one finished trial; nan where a number does not exist, left out where its inputs do.

    A time to a target is cut off at the trial's own horizon here: what is derived from it in turn has no other.
    """
    found: dict[str, float] = {}
    known = dict(trial.metrics)
    for each in derivations(ways):
        try:
            value = each.number(trial, known)
        except Lacking as lacking:
            problems.extend([str(lacking)] if str(lacking) not in problems else [])
            continue
        if value is not None:
            found[each.name] = known[each.name] = value
    return found


def losses_of_diverged(ways: Mapping[str, Way], baselines: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    """The value of a diverged trial where a loss is cut off: the loss of guessing."""
    guessed = {
        each.name: baselines.get(each.inputs[0], {}).get("guessing")
        for each in derivations(ways)
        if isinstance(each, Capped)
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
