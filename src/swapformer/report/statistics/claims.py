"""Claims of a study: which kinds there are, how they are parsed, and for which true differences each one holds.

    worse, better   {arm, than, metric, margin}            for metrics with a good direction
    lower, higher   {arm, than, metric, margin}            for any metric; the only ones for probes
    within          {arm, of, metric, margin | relative}   “as good as”; `of` is an arm or `best`
    diverges        {arm, than, margin}                    more often, as a difference of rates

Every claim is a *region* of the true difference arm - than; a verdict asks whether the interval lies in it.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from swapformer.errors import UsageError, suggest
from swapformer.ranges import NonNegative, complaint, fits

Kind = Literal["worse", "better", "lower", "higher", "within", "diverges"]
KINDS: tuple[Kind, ...] = get_args(Kind)
BEST = "best"

_KEYS: Mapping[Kind, tuple[str, ...]] = {
    **dict.fromkeys(("worse", "better", "lower", "higher"), ("arm", "than", "metric", "margin")),
    "within": ("arm", "of", "metric", "margin", "relative"),
    "diverges": ("arm", "than", "margin"),
}


@dataclass(frozen=True)
class Claim:
    """A hypothesis of a study about one arm, which must hold against every arm in `than`.

    `margin` is in the metric's units (`relative`: a fraction of the other arm's mean; `diverges`: of rates); `of_best`
    marks `within: {of: best}`.
    """

    text: str
    kind: Kind
    arm: str
    than: tuple[str, ...]
    metric: str | None
    margin: float
    relative: bool = False
    of_best: bool = False

    @property
    def needs_direction(self) -> bool:
        """Whether the claim is about better and worse, which needs a metric with a good direction."""
        return self.kind in ("worse", "better") or self.of_best

    def margin_width(self, reference: float) -> float:
        """The margin in the units of the metric, given the mean of the arm that is compared with."""
        return self.margin * abs(reference) if self.relative else self.margin

    def region(self, direction: str | None, reference: float) -> tuple[float, float]:
        """The open interval of true differences arm - than in which the claim holds.

        `best` is at least as good as any arm, so a difference to it has only one sign: that region has one edge.
        """
        margin = self.margin_width(reference)
        worse_is_above = direction != "higher"
        if self.kind == "within" and not self.of_best:
            return -margin, margin
        if self.kind == "within":
            return (-math.inf, margin) if worse_is_above else (-margin, math.inf)
        above = self.kind in ("higher", "diverges") or self.kind == ("worse" if worse_is_above else "better")
        return (margin, math.inf) if above else (-math.inf, -margin)


def parse(claims: Collection[Mapping[str, Any]], arms: Collection[str], metrics: Collection[str]) -> list[Claim]:
    """The claims of a `study.yaml`, checked. Raises `UsageError` with the claim's number and what would be right."""
    if not isinstance(claims, list | tuple):
        raise UsageError(f"`claims` must be a list of mappings, but is {claims!r}")
    return [_Parser(f"claim {number}", arms, metrics).claim(raw) for number, raw in enumerate(claims, 1)]


@dataclass(frozen=True)
class _Parser:
    where: str
    arms: Collection[str]
    metrics: Collection[str]

    def fail(self, message: str) -> UsageError:
        return UsageError(f"{self.where}: {message}")

    def claim(self, raw: Any) -> Claim:
        if not isinstance(raw, Mapping):
            raise self.fail(f"must be a mapping like {{text: …, worse: {{…}}}}, but is {raw!r}")
        text = raw.get("text")
        if not isinstance(text, str) or not text.strip():
            raise self.fail(f"needs a `text` that says it in words, got {text!r}")
        named = _Parser(f"{self.where} ({text!r})", self.arms, self.metrics)
        kinds = [str(key) for key in raw if key != "text"]
        for kind in kinds:
            if kind not in KINDS:
                raise named.fail(f"unknown kind {kind!r}{suggest(kind, KINDS)}")
        if len(kinds) != 1:
            raise named.fail(f"needs exactly one of {', '.join(KINDS)}, got {', '.join(kinds) or 'none'}")
        return named.body(text.strip(), next(kind for kind in KINDS if kind == kinds[0]), raw[kinds[0]])

    def body(self, text: str, kind: Kind, raw: Any) -> Claim:
        keys = _KEYS[kind]
        if not isinstance(raw, Mapping):
            raise self.fail(f"`{kind}` must be a mapping with {', '.join(keys)}, but is {raw!r}")
        for key in raw:
            if key not in keys:
                raise self.fail(f"`{kind}` has no key {key!r}{suggest(str(key), keys)}")
        other = "of" if kind == "within" else "than"
        for key in ("arm", other, "metric"):
            if key in keys and key not in raw:
                raise self.fail(f"`{kind}` needs `{key}`")
        arm = self.arm(raw["arm"])
        of_best = kind == "within" and raw["of"] == BEST and BEST not in self.arms
        than = tuple(a for a in self.arms if a != arm) if of_best else self.others(raw[other], other, arm, kind)
        if not than:
            raise self.fail("`of: best` needs at least one other arm in the study")
        claim = Claim(text, kind, arm, than, self.metric(raw.get("metric"), kind), *self.margin(raw, kind), of_best)
        if claim.needs_direction and str(claim.metric).startswith("probe/"):
            raise self.fail(f"{claim.metric} has no good direction; use `lower`, `higher` or `within` of an arm")
        return claim

    def arm(self, name: Any) -> str:
        if not isinstance(name, str) or name not in self.arms:
            raise self.fail(f"unknown arm {name!r}{suggest(str(name), self.arms)}")
        return name

    def others(self, raw: Any, key: str, arm: str, kind: Kind) -> tuple[str, ...]:
        names = raw if isinstance(raw, list | tuple) and kind != "within" else [raw]
        others = tuple(dict.fromkeys(self.arm(name) for name in names))
        if not others:
            raise self.fail(f"`{key}` must name at least one arm")
        if arm in others:
            raise self.fail(f"compares the arm {arm!r} with itself")
        return others

    def metric(self, name: Any, kind: Kind) -> str | None:
        if kind == "diverges":
            return None
        if not isinstance(name, str) or name not in self.metrics:
            raise self.fail(f"the study does not measure {name!r}{suggest(str(name), self.metrics)}")
        return name

    def margin(self, raw: Mapping[str, Any], kind: Kind) -> tuple[float, bool]:
        given = [key for key in ("margin", "relative") if key in raw]
        if len(given) != 1:
            wanted = "exactly one of `margin` and `relative`" if kind == "within" else "a `margin` (0 or more)"
            raise self.fail(f"`{kind}` needs {wanted}, got {' and '.join(given) or 'none'}")
        value = raw[given[0]]
        if not fits(NonNegative, value):
            raise self.fail(complaint(NonNegative, value, given[0]).rstrip("."))
        if kind == "within" and value == 0:
            raise self.fail(f"`{given[0]}` of a `within` must be above 0: nothing is shown to be exactly equal")
        if kind == "diverges" and value >= 1:
            raise self.fail(f"`margin` is a difference of rates and must be below 1, but is {value!r}")
        return float(value), given[0] == "relative"
