"""Readers of the fields that claims have: arms, conditions, metrics, numbers, ranges and axes."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from swapformer.errors import UsageError, quote, suggest
from swapformer.results.arms import Values
from swapformer.results.moments import family_of

WITH = " with "
RANGES = ("above", "below", "between")


@dataclass(frozen=True)
class Term:
    """One summand of a contrast: a weight times the mean of an arm in a metric; `condition` is empty for “in each”.

    `place`: its position on the axis of an optimum.
    """

    weight: float
    arm: str
    metric: str
    condition: str = ""
    place: float = math.nan

    @property
    def name(self) -> str:
        """The arm, with its condition where it has one."""
        return f"{self.arm}{WITH}{self.condition}" if self.condition else self.arm


def difference(arm: str, than: str, metric: str) -> tuple[Term, Term]:
    """The terms of arm - than."""
    return Term(1.0, arm, metric), Term(-1.0, than, metric)


@dataclass(frozen=True)
class Fields:
    """The fields of one claim, each mistake told with the claim's number and text.

    `arms` may map each name to its overrides, by whose numbers a slope can go. `chosen`: the conditions of the grid
    that the claim is limited to; None for all.
    """

    where: str
    arms: Collection[str]
    metrics: Collection[str]
    conditions: Mapping[str, Values]
    chosen: tuple[str, ...] | None = None

    def fail(self, message: str) -> UsageError:
        """The error that says what is wrong with the claim."""
        return UsageError(f"{self.where}: {message}")

    def arm_condition(self, name: Any) -> tuple[str, str]:
        """An arm, or `ARM with CONDITION`."""
        if isinstance(name, str) and name not in self.arms and WITH in name:
            arm, _, condition = name.partition(WITH)
            if condition not in self.conditions:
                raise self.fail(f"the grid has no condition {quote(condition)}{suggest(condition, self.conditions)}")
            return self.arm(arm), condition
        return self.arm(name), ""

    def family(self, name: Any) -> str:
        """A family of metrics that a slope goes over."""
        bases = dict.fromkeys(family_of(metric)[0] for metric in self.metrics)
        if name not in bases:
            raise self.fail(f"a slope is over the lengths n of metric@n, but the study has no {quote(name)}"
                            f"{suggest(str(name), bases)}")  # fmt: skip
        return str(name)

    def range(self, raw: Mapping[str, Any], kind: str) -> tuple[float, float]:
        """The range that a claim is held against."""
        given = [key for key in RANGES if key in raw]
        if len(given) != 1:
            raise self.fail(f"`{kind}` needs exactly one of {', '.join(RANGES)}, got {' and '.join(given) or 'none'}")
        if given[0] != "between":
            edge = self.number(raw[given[0]], given[0])
            return (edge, math.inf) if given[0] == "above" else (-math.inf, edge)
        ends = raw["between"] if isinstance(raw["between"], list | tuple) else []
        low, high = [self.number(end, "between") for end in ends] if len(ends) == 2 else (0.0, 0.0)
        if not low < high:
            raise self.fail(f"`between` must be two growing numbers, such as [-0.1, 0.1], not {quote(raw['between'])}")
        return low, high

    def arm(self, name: Any) -> str:
        """An arm of the study."""
        if not isinstance(name, str) or name not in self.arms:
            raise self.fail(f"unknown arm {quote(name)}{suggest(str(name), self.arms)}")
        return name

    def others(self, raw: Any, key: str, arm: str) -> tuple[str, ...]:
        """The arms that the claim's is compared with."""
        others = tuple(self.arm(name) for name in (raw if isinstance(raw, list | tuple) else [raw]))
        if not others:
            raise self.fail(f"`{key}` must name at least one arm")
        if twice := [name for name in others if others.count(name) > 1]:
            raise self.fail(f"`{key}` must name each arm once, but {quote(twice[0])} is there twice")
        if arm in others:
            raise self.fail(f"compares the arm {quote(arm)} with itself")
        return others

    def other(self, raw: Any, key: str, arm: str) -> tuple[str, ...]:
        """The one arm that the claim's is compared with."""
        return self.others([raw], key, arm)

    def metric(self, name: Any, kind: str) -> str:
        """A metric of the study."""
        if name is None:
            raise self.fail(f"`{kind}` needs `metric`, one of {', '.join(self.metrics) or 'none: the study has none'}")
        if not isinstance(name, str) or name not in self.metrics:
            raise self.fail(f"the study does not measure {quote(name)}{suggest(str(name), self.metrics)}")
        return name

    def number(self, value: Any, key: str) -> float:
        """A finite number."""
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise self.fail(f"`{key}` must be a finite number, but is {quote(value)}")
        return float(value)

    def limit(self, raw: Any) -> tuple[str, ...]:
        """The conditions that `at` limits the claim to."""
        if not isinstance(raw, Mapping) or not raw:
            raise self.fail(f"`at` must map keys of the grid to values, such as {{model/size: nano}}, not {quote(raw)}")
        chosen = dict(self.conditions)
        for key, value in raw.items():
            if key not in self.factors:
                raise self.fail(f"the grid has no key {quote(key)}{suggest(str(key), self.factors)}")
            known = dict.fromkeys(values[key] for values in self.conditions.values())
            wanted = []
            for each in value if isinstance(value, list | tuple) else [value]:
                same = [text for text in known if text == str(each) or _number(text) == _number(str(each))]
                if not same:
                    raise self.fail(f"the grid has no {key}={str(each)[:200]}{suggest(str(each), known)}")
                wanted += same
            chosen = {name: values for name, values in chosen.items() if values[key] in wanted}
        return tuple(chosen)

    @property
    def factors(self) -> list[str]:
        """The keys of the grid."""
        return list(dict.fromkeys(key for values in self.conditions.values() for key in values))

    def axis(self, raw: Mapping[str, Any], kind: str, over: Any) -> list[tuple[float, list[Term]]]:
        """The points of an axis of arms or conditions: a number, and its arm (weight 1) and what it is held against.

        `over` maps arms to numbers; or names a key of the grid, where `arm` stands for the claim's; or a key that the
        overrides of `arms` set.
        """
        if isinstance(over, Mapping):
            points = [(self.number(x, f"over {arm}"), [Term(1.0, self.arm(arm), "")]) for arm, x in over.items()]
        elif over in self.factors:
            if "arm" not in raw:
                raise self.fail(f"`{kind}` over {over}, a key of the grid, needs the `arm` that it is of")
            arm = self.arm(raw["arm"])
            others = self.other(raw["than"], "than", arm) if "than" in raw else ()
            points = [
                (
                    self.place(self.conditions[at][over], over),
                    [Term(1.0, arm, "", at), *(Term(-1.0, other, "", at) for other in others)],
                )
                for at in self.along(over)
            ]
        else:
            points = [(self.place(x, over), [Term(1.0, arm, "")]) for arm, x in self.set_by_arms(raw, kind, over)]
        if isinstance(over, Mapping) and {"arm", "than", "arms"} & raw.keys():
            raise self.fail("`over` that maps arms to numbers goes without `arm`, `arms` and `than`")
        if len({x for x, _ in points}) < max(2, len(points)):
            xs = ", ".join(f"{x:g}" for x, _ in points)
            raise self.fail(f"`over` needs at least two different numbers, one for each point, but has {xs or 'none'}")
        return sorted(points, key=lambda point: point[0])

    def along(self, key: str) -> Sequence[str]:
        """The conditions along one key of the grid, in which the others stay as they are."""
        names = self.chosen if self.chosen is not None else tuple(self.conditions)
        apart = [other for other in self.factors if other != key]
        if len({tuple(self.conditions[name][other] for other in apart) for name in names}) > 1:
            said = ", ".join(f"{other}: {self.conditions[names[0]][other]}" for other in apart)
            raise self.fail(f"an axis over {key} needs one value of every other key of the grid: say at: {{{said}}}")
        return names

    def set_by_arms(self, raw: Mapping[str, Any], kind: str, key: Any) -> list[tuple[str, str]]:
        """(arm, what its overrides set a key to) of `arms`."""
        named = raw.get("arms")
        if not isinstance(named, list | tuple) or "arm" in raw or "than" in raw:
            known = [*self.factors, *(text.partition("=")[0] for own in self._overrides.values() for text in own)]
            wanted = f"a key of the grid, or one that the overrides of `arms: [...]` set, not {quote(key)}"
            raise self.fail(f"`over` of a {kind} must map arms to numbers, or be {wanted}{suggest(str(key), known)}")
        found = []
        for arm in named:
            own = [
                text.partition("=")[2] for text in self._overrides.get(self.arm(arm), ()) if text.startswith(f"{key}=")
            ]
            if not own:
                raise self.fail(f"`over` {quote(key)} is no key of the grid, nor does the arm {quote(arm)} set it")
            found.append((str(arm), own[-1]))
        return found

    @property
    def _overrides(self) -> Mapping[str, Sequence[str]]:
        return self.arms if isinstance(self.arms, Mapping) else {}

    def place(self, text: str, key: str) -> float:
        """The number of a place on an axis."""
        try:
            return self.number(float(text), key)
        except ValueError:
            raise self.fail(f"`over` {key} must have numbers for values, but one is {quote(text)}") from None


def _number(text: str) -> object:
    """The number that a text spells, as 1e-3 and 0.001 do; else something that equals nothing."""
    try:
        return float(text)
    except ValueError:
        return object()
