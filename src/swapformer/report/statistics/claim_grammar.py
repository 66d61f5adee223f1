"""The grammar of claims: parses and checks those of a study file, each mistake with one clear line."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

from swapformer.errors import UsageError, quote, suggest
from swapformer.ranges import NonNegative, complaint, fits
from swapformer.report.statistics.claims import BEST, KINDS, WITH, Claim, Kind, Term
from swapformer.report.statistics.estimates import UNBOUNDED
from swapformer.results.arms import Values
from swapformer.results.manifest import Manifest
from swapformer.results.moments import family_of

_RANGES = ("above", "below", "between")
_KEYS: Mapping[Kind, tuple[str, ...]] = {
    **dict.fromkeys(("worse", "better", "lower", "higher", "first"), ("arm", "than", "metric", "margin")),
    "within": ("arm", "of", "metric", "margin", "relative"),
    "diverges": ("arm", "than", "margin"),
    "reaches": ("arm", "than", "metric", "value", "share", "margin"),
    "contrast": ("weights", "metric", *_RANGES),
    "slope": ("arm", "than", "metric", *_RANGES),
    "trend": ("arms", "metric", *_RANGES),
}
_NEEDED: Mapping[Kind, tuple[str, ...]] = {
    "diverges": ("arm", "than"), "reaches": ("arm", "metric", "value"), "contrast": ("weights",),
    "slope": ("arm", "metric"), "trend": ("arms", "metric"), "within": ("arm", "of", "metric"),
}  # fmt: skip
_REACHABLE: Mapping[str, tuple[float, float]] = {
    **dict.fromkeys(("accuracy", "exact_match", "macro_f1", "calibration_error"), (0.0, 1.0)),
    **dict.fromkeys(("loss", "bits_per_byte", "mae"), (0.0, math.inf)),
    "perplexity": (1.0, math.inf),
    "r2": (-math.inf, 1.0),
}
"""The values that a metric of a split can take, by its name without a length."""


def parse(
    claims: Collection[Mapping[str, Any]],
    arms: Collection[str],
    metrics: Collection[str],
    conditions: Mapping[str, Values] | None = None,
    exact: Collection[str] = (),
) -> list[Claim]:
    """The claims of a `study.yaml`, checked. Raises `UsageError` with the claim's number and what would be right.

    `conditions` are those of the grid; metrics that are `exact` have the same value with every seed.
    """
    if not isinstance(claims, list | tuple):
        raise UsageError(f"`claims` must be a list of mappings, but is {quote(claims)}")
    known = conditions or {"": {}}
    found = [_Parser(f"claim {number}", arms, metrics, known).claim(raw) for number, raw in enumerate(claims, 1)]
    return [replace(each, exact=bool(each.metrics) and set(each.metrics) <= set(exact)) for each in found]


def claims_of(manifest: Manifest) -> list[Claim]:
    """The claims of the study that a manifest describes."""
    return parse(manifest.claims, tuple(manifest.arms), manifest.metrics, manifest.conditions, manifest.exact)


@dataclass(frozen=True)
class _Parser:
    where: str
    arms: Collection[str]
    metrics: Collection[str]
    conditions: Mapping[str, Values]

    def fail(self, message: str) -> UsageError:
        return UsageError(f"{self.where}: {message}")

    def claim(self, raw: Any) -> Claim:
        if not isinstance(raw, Mapping):
            raise self.fail(f"must be a mapping like {{text: …, worse: {{…}}}}, but is {quote(raw)}")
        text = raw.get("text")
        if not isinstance(text, str) or not text.strip():
            raise self.fail(f"needs a `text` that says it in words, got {quote(text)}")
        named = replace(self, where=f"{self.where} ({quote(text)})")
        kinds = [str(key) for key in raw if key not in ("text", "at")]
        for kind in kinds:
            if kind not in KINDS:
                raise named.fail(f"unknown kind {quote(kind)}{suggest(kind, KINDS)}")
        if len(kinds) != 1:
            raise named.fail(f"needs exactly one of {', '.join(KINDS)}, got {', '.join(kinds) or 'none'}")
        found = named.body(text.strip(), next(kind for kind in KINDS if kind == kinds[0]), raw[kinds[0]])
        return replace(found, at=named.at(raw["at"], found)) if "at" in raw else found

    def body(self, text: str, kind: Kind, raw: Any) -> Claim:
        keys = _KEYS[kind]
        if not isinstance(raw, Mapping):
            raise self.fail(f"`{kind}` must be a mapping with {', '.join(keys)}, but is {quote(raw)}")
        for key in raw:
            if key not in keys:
                raise self.fail(f"`{kind}` has no key {quote(key)}{suggest(str(key), keys)}")
        for key in _NEEDED.get(kind, ("arm", "than", "metric")):
            if key not in raw:
                raise self.fail(f"`{kind}` needs `{key}`")
        if kind in ("contrast", "slope", "trend"):
            return self.contrast(text, kind, raw)
        arm = self.arm(raw["arm"])
        if kind == "reaches" and "than" not in raw:
            return self.reaches(text, arm, raw)
        of_best = kind == "within" and raw["of"] == BEST and BEST not in self.arms
        other = "of" if kind == "within" else "than"
        than = tuple(a for a in self.arms if a != arm) if of_best else self.others(raw[other], other, arm, kind)
        if not than:
            raise self.fail("`of: best` needs at least one other arm in the study")
        claim = Claim(text, kind, arm, than, self.metric(raw.get("metric"), kind), *self.margin(raw, kind), of_best)
        if kind == "reaches":
            claim = replace(claim, value=self.reachable(raw["value"], str(claim.metric)))
        return self.directed(claim)

    def directed(self, claim: Claim) -> Claim:
        if claim.needs_direction and str(claim.metric).startswith("probe/"):
            raise self.fail(f"{claim.metric} has no good direction; use `lower`, `higher` or `within` of an arm")
        return claim

    def reaches(self, text: str, arm: str, raw: Mapping[str, Any]) -> Claim:
        if "share" not in raw or "margin" in raw:
            raise self.fail("`reaches` needs `share`, or `than` with a `margin` of rates")
        share, metric = self.number(raw["share"], "share"), str(self.metric(raw["metric"], "reaches"))
        if not 0 <= share < 1:
            raise self.fail(f"`share` is a share of the seeds and must be from 0 to below 1, but is {share}")
        value = self.reachable(raw["value"], metric)
        return self.directed(Claim(text, "reaches", arm, (), metric, 0.0, value=value, bounds=(share, math.inf)))

    def reachable(self, raw: Any, metric: str) -> float:
        value = self.number(raw, "value")
        split, _, name = metric.partition("/")
        least, most = _REACHABLE.get(name.partition("@")[0], UNBOUNDED) if split in ("val", "test") else UNBOUNDED
        if not least <= value <= most:
            raise self.fail(f"`value` must be one that {metric} can take, from {least:g} to {most:g}, but is {value:g}")
        return value

    def contrast(self, text: str, kind: Kind, raw: Mapping[str, Any]) -> Claim:
        bounds = self.range(raw, kind)
        if kind == "slope":
            slope = f"slope({self.family(raw['metric'])})"
            arm = self.arm(raw["arm"])
            others = self.others(raw["than"], "than", arm, "within") if "than" in raw else ()
            terms = [Term(1.0, arm, slope), *(Term(-1.0, other, slope) for other in others)]
        elif kind == "trend":
            metric = str(self.metric(raw["metric"], kind))
            named = raw["arms"] if isinstance(raw["arms"], list | tuple) else [raw["arms"]]
            terms = [Term(float(rank), self.arm(arm), metric) for rank, arm in enumerate(named, 1)]
            if len({term.arm for term in terms}) != len(terms) or len(terms) < 3:
                raise self.fail(f"`arms` must name at least three different arms in their order, not {quote(named)}")
            if bounds[0] >= 1 or bounds[1] <= -1:
                raise self.fail("a trend is Kendall's τ, which lies from -1 to 1: no trial could be in that range")
        else:
            terms = self.terms(raw)
        arm = terms[0].arm if len({term.arm for term in terms}) == 1 else "; ".join(term.name for term in terms)
        return Claim(text, kind, arm, (), terms[0].metric, 0.0, terms=tuple(terms), bounds=bounds)

    def terms(self, raw: Mapping[str, Any]) -> list[Term]:
        weights = raw["weights"]
        if not isinstance(weights, Mapping) or not weights:
            raise self.fail(f"`weights` must map arms to numbers, such as {{h16: 1, h8: -1}}, not {quote(weights)}")
        found = []
        for name, weight in weights.items():
            arm, condition = self.arm_condition(name)
            of = weight if isinstance(weight, Mapping) else {raw.get("metric"): weight}
            if isinstance(weight, Mapping) and "metric" in raw:
                raise self.fail(f"`weights` of {quote(name)} name metrics, so `metric` must be left out")
            for metric, number in of.items():
                known = str(self.metric(metric, "contrast"))
                found.append(Term(self.number(number, f"weight of {name}"), arm, known, condition))
        if not any(term.weight for term in found):
            raise self.fail("`weights` must not all be 0")
        if len({bool(term.condition) for term in found}) > 1:
            raise self.fail("`weights` must name a condition for every arm, or for none")
        return found

    def arm_condition(self, name: Any) -> tuple[str, str]:
        """An arm, or `ARM with CONDITION`."""
        if isinstance(name, str) and name not in self.arms and WITH in name:
            arm, _, condition = name.partition(WITH)
            if condition not in self.conditions:
                raise self.fail(f"the grid has no condition {quote(condition)}{suggest(condition, self.conditions)}")
            return self.arm(arm), condition
        return self.arm(name), ""

    def family(self, name: Any) -> str:
        bases = dict.fromkeys(family_of(metric)[0] for metric in self.metrics)
        if name not in bases:
            raise self.fail(f"a slope is over the lengths n of metric@n, but the study has no {quote(name)}"
                            f"{suggest(str(name), bases)}")  # fmt: skip
        return str(name)

    def range(self, raw: Mapping[str, Any], kind: Kind) -> tuple[float, float]:
        given = [key for key in _RANGES if key in raw]
        if len(given) != 1:
            raise self.fail(f"`{kind}` needs exactly one of {', '.join(_RANGES)}, got {' and '.join(given) or 'none'}")
        if given[0] != "between":
            edge = self.number(raw[given[0]], given[0])
            return (edge, math.inf) if given[0] == "above" else (-math.inf, edge)
        ends = raw["between"] if isinstance(raw["between"], list | tuple) else []
        low, high = [self.number(end, "between") for end in ends] if len(ends) == 2 else (0.0, 0.0)
        if not low < high:
            raise self.fail(f"`between` must be two growing numbers, such as [-0.1, 0.1], not {quote(raw['between'])}")
        return low, high

    def at(self, raw: Any, claim: Claim) -> tuple[str, ...]:
        if not isinstance(raw, Mapping) or not raw:
            raise self.fail(f"`at` must map keys of the grid to values, such as {{model/size: nano}}, not {quote(raw)}")
        if claim.spans:
            raise self.fail("`at` and arms with conditions exclude each other: a contrast names its conditions itself")
        keys = dict.fromkeys(key for values in self.conditions.values() for key in values)
        chosen = dict(self.conditions)
        for key, value in raw.items():
            if key not in keys:
                raise self.fail(f"the grid has no key {quote(key)}{suggest(str(key), keys)}")
            wanted = [str(each) for each in (value if isinstance(value, list | tuple) else [value])]
            known = dict.fromkeys(values[key] for values in self.conditions.values())
            for each in wanted:
                if each not in known:
                    raise self.fail(f"the grid has no {key}={each[:200]}{suggest(each, known)}")
            chosen = {name: values for name, values in chosen.items() if values[key] in wanted}
        return tuple(chosen)

    def arm(self, name: Any) -> str:
        if not isinstance(name, str) or name not in self.arms:
            raise self.fail(f"unknown arm {quote(name)}{suggest(str(name), self.arms)}")
        return name

    def others(self, raw: Any, key: str, arm: str, kind: Kind) -> tuple[str, ...]:
        names = raw if isinstance(raw, list | tuple) and kind != "within" else [raw]
        others = tuple(dict.fromkeys(self.arm(name) for name in names))
        if not others:
            raise self.fail(f"`{key}` must name at least one arm")
        if arm in others:
            raise self.fail(f"compares the arm {quote(arm)} with itself")
        return others

    def metric(self, name: Any, kind: Kind) -> str | None:
        if kind == "diverges":
            return None
        if not isinstance(name, str) or name not in self.metrics:
            raise self.fail(f"the study does not measure {quote(name)}{suggest(str(name), self.metrics)}")
        return name

    def number(self, value: Any, key: str) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise self.fail(f"`{key}` must be a finite number, but is {quote(value)}")
        return float(value)

    def margin(self, raw: Mapping[str, Any], kind: Kind) -> tuple[float, bool]:
        given = [key for key in ("margin", "relative") if key in raw]
        if len(given) != 1 or "share" in raw:
            wanted = "exactly one of `margin` and `relative`" if kind == "within" else "a `margin` (0 or more)"
            got = [*given, *(["share"] if "share" in raw else [])]
            raise self.fail(f"`{kind}` needs {wanted}, got {' and '.join(got) or 'none'}")
        value = raw[given[0]]
        if not fits(NonNegative, value):
            raise self.fail(complaint(NonNegative, value, given[0]).rstrip("."))
        if kind == "within" and value == 0:
            raise self.fail(f"`{given[0]}` of a `within` must be above 0: nothing is shown to be exactly equal")
        if kind in ("diverges", "reaches", "first") and value >= 1:
            raise self.fail(f"`margin` is a difference of rates and must be below 1, but is {quote(value)}")
        return float(value), given[0] == "relative"
