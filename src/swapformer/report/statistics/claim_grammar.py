"""The grammar of claims: parses and checks those of a study file, each mistake with one clear line."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from swapformer.errors import UsageError, quote, suggest
from swapformer.ranges import NonNegative, complaint, fits
from swapformer.report.derive import LR_KEY, exact_of, ways_of
from swapformer.report.statistics.claim_fields import RANGES, Fields
from swapformer.report.statistics.claims import BEST, KINDS, NEXT, OVER_LADDER, OVER_TRIALS, Claim, Kind, Term
from swapformer.report.statistics.estimates import UNBOUNDED
from swapformer.results.arms import RUNG, TOKENS_PER_PARAMETER, Values
from swapformer.results.manifest import Manifest

_KEYS: Mapping[Kind, tuple[str, ...]] = {
    **dict.fromkeys(("worse", "better", "lower", "higher"), ("arm", "than", "metric", "margin")),
    "within": ("arm", "of", "metric", "margin", "relative"),
    "diverges": ("arm", "than", "margin", *RANGES),
    "reaches": ("arm", "than", "metric", "value", "share", "margin", *RANGES),
    "contrast": ("weights", "metric", *RANGES),
    "slope": ("arm", "than", "metric", "over", "arms", *RANGES),
    **dict.fromkeys(OVER_TRIALS, ("arm", "than", "metric", "over", "arms", *RANGES)),
    "trend": ("arms", "metric", *RANGES),
    "speed_up": ("arm", "than", "metric", "where", *RANGES),
    "grows": ("arm", "than", "metric", *RANGES),
}
_NEEDED: Mapping[Kind, tuple[str, ...]] = {
    "diverges": ("arm",), "reaches": ("arm", "metric", "value"), "contrast": ("weights",),
    "slope": ("metric",), **dict.fromkeys(OVER_TRIALS, ("metric",)), "trend": ("arms", "metric"),
    "within": ("arm", "of", "metric"),
}  # fmt: skip
_GONE = {"first": "`reaches`, or `better`", "lr_sensitivity": "`optimum`, or a `contrast` of the rates of a grid"}
"""Kinds of an older version, with what to say now."""
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

    `arms` may map names to overrides, by whose numbers a slope can go; `conditions` are those of the grid; metrics that
    are `exact` have the same value with every seed.
    """
    if not isinstance(claims, list | tuple):
        raise UsageError(f"`claims` must be a list of mappings, but is {quote(claims)}")
    known = conditions or {"": {}}
    found = [_Parser(f"claim {number}", arms, metrics, known).claim(raw) for number, raw in enumerate(claims, 1)]
    return [replace(each, exact=each.of_values and set(each.metrics) <= set(exact)) for each in found]


def claims_of(manifest: Manifest) -> list[Claim]:
    """The claims of the study that a manifest describes."""
    exact = exact_of(ways_of(manifest), manifest.exact)
    return parse(manifest.claims, manifest.arms, manifest.metrics, manifest.conditions, exact)


class _Parser(Fields):
    """Reads one claim of a study file."""

    def claim(self, raw: Any) -> Claim:
        if not isinstance(raw, Mapping):
            raise self.fail(f"must be a mapping like {{text: …, worse: {{…}}}}, but is {quote(raw)}")
        text = raw.get("text")
        if not isinstance(text, str) or not text.strip():
            raise self.fail(f"needs a `text` that says it in words, got {quote(text)}")
        named = replace(self, where=f"{self.where} ({quote(text)})")
        withdrawn = raw.get("withdrawn", "")
        if not isinstance(withdrawn, str) or ("withdrawn" in raw and not withdrawn.strip()):
            raise named.fail(f"`withdrawn` says why in words, but is {quote(withdrawn)}")
        kinds = [str(key) for key in raw if key not in ("text", "at", "withdrawn")]
        for kind in kinds:
            if kind in _GONE:
                raise named.fail(f"`{kind}` is gone: say {_GONE[kind]}")
            if kind not in KINDS:
                raise named.fail(f"unknown kind {quote(kind)}{suggest(kind, KINDS)}")
        if len(kinds) != 1:
            raise named.fail(f"needs exactly one of {', '.join(KINDS)}, got {', '.join(kinds) or 'none'}")
        chosen = named.limit(raw["at"]) if "at" in raw else None
        named = replace(named, chosen=chosen)
        found = named.body(text.strip(), next(kind for kind in KINDS if kind == kinds[0]), raw[kinds[0]])
        if found.spans and chosen is not None and not found.over:
            raise named.fail("`at` and arms with conditions exclude each other: a contrast names its conditions itself")
        if not withdrawn:
            named.same_tokens(found)
        found = replace(found, withdrawn=withdrawn.strip())
        return found if found.spans else replace(found, at=chosen)

    def same_tokens(self, claim: Claim) -> None:
        """Refuse a difference between losses of other tokens, which is about the text and not the model."""
        for metric in claim.metrics:
            other = metric.replace("loss_within@", "loss_beyond@")
            if other != metric and other in claim.metrics:
                raise self.fail(
                    f"{metric} and {other} are losses of other tokens, so their difference is about the text; compare "
                    "the same targets with more and with less context: a replay under `task.eval_lengths`, or one "
                    "metric between arms"
                )

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
        if kind in OVER_LADDER:
            return self.ladder(text, kind, raw)
        if kind in ("contrast", "slope", "trend", *OVER_TRIALS):
            return self.contrast(text, kind, raw)
        arm = self.arm(raw["arm"])
        if kind in ("reaches", "diverges") and "than" not in raw:
            return self.share(text, kind, arm, raw)
        of_best = kind == "within" and raw["of"] == BEST and BEST not in self.arms
        other = "of" if kind == "within" else "than"
        than = tuple(a for a in self.arms if a != arm) if of_best else self.others(raw[other], other, arm, kind)
        if not than:
            raise self.fail("`of: best` needs at least one other arm in the study")
        metric = self.metric(raw.get("metric"), kind)
        if kind in ("reaches", "diverges") and any(key in raw for key in RANGES) and "margin" not in raw:
            claim = Claim(text, kind, arm, than, metric, 0.0, bounds=self.shares(raw, kind, -1.0))
        else:
            claim = Claim(text, kind, arm, than, metric, *self.margin(raw, kind), of_best)
        if kind == "reaches":
            claim = replace(claim, value=self.reachable(raw["value"], str(claim.metric)))
        return self.directed(claim)

    def directed(self, claim: Claim) -> Claim:
        if claim.needs_direction and str(claim.metric).startswith("probe/"):
            raise self.fail(f"{claim.metric} has no good direction; use `lower`, `higher` or `within` of an arm")
        return claim

    def share(self, text: str, kind: Kind, arm: str, raw: Mapping[str, Any]) -> Claim:
        """A claim about the share of an arm's seeds that reach a value, or that diverge."""
        if "margin" in raw or (kind == "reaches" and not any(key in raw for key in ("share", *RANGES))):
            given = "`share`" if kind == "reaches" else " or ".join(f"`{key}`" for key in RANGES)
            raise self.fail(f"`{kind}` needs {given}, or `than` with a `margin` of rates")
        bounds = self.shares(raw, kind, 0.0)
        if kind == "diverges":
            return Claim(text, kind, arm, (), None, 0.0, bounds=bounds)
        metric = str(self.metric(raw["metric"], kind))
        value = self.reachable(raw["value"], metric)
        return self.directed(Claim(text, kind, arm, (), metric, 0.0, value=value, bounds=bounds))

    def shares(self, raw: Mapping[str, Any], kind: Kind, least: float) -> tuple[float, float]:
        """A range of shares of seeds, from `least` to 1."""
        if "share" in raw:
            share = self.number(raw["share"], "share")
            if not 0 <= share < 1:
                raise self.fail(f"`share` is a share of the seeds and must be from 0 to below 1, but is {share}")
            if any(key in raw for key in RANGES):
                raise self.fail(f"`share` of `{kind}` means `above`: remove one of them")
            return share, math.inf
        bounds = self.range(raw, kind)
        if bounds[0] >= 1 or bounds[1] <= least:
            raise self.fail(f"`{kind}` is about shares of seeds, from {least:g} to 1: none could be in that range")
        return bounds

    def reachable(self, raw: Any, metric: str) -> float:
        value = self.number(raw, "value")
        split, _, name = metric.partition("/")
        least, most = _REACHABLE.get(name.partition("@")[0], UNBOUNDED) if split in ("val", "test") else UNBOUNDED
        if not least <= value <= most:
            raise self.fail(f"`value` must be one that {metric} can take, from {least:g} to {most:g}, but is {value:g}")
        return value

    def contrast(self, text: str, kind: Kind, raw: Mapping[str, Any]) -> Claim:
        bounds = self.range(raw, kind)
        over = ""
        if kind in OVER_TRIALS or (kind == "slope" and "over" in raw):
            asked, metric = raw.get("over", LR_KEY), str(self.metric(raw["metric"], kind))
            points = self.axis(raw, kind, asked)
            over = "the numbers given" if isinstance(asked, Mapping) else str(asked)
            if kind == "slope":
                terms = self.log_slope(points, metric)
            else:
                if kind == "optimum" and (len(points) < 3 or not points[0][0] > 0):
                    xs = ", ".join(f"{x:g}" for x, _ in points)
                    raise self.fail(f"`over` of an optimum needs at least three numbers, all above 0, but has {xs}")
                terms = [replace(term, metric=f"capped({metric})", place=x) for x, found in points for term in found]
        elif kind == "slope":
            if "arm" not in raw or "arms" in raw:
                raise self.fail("`slope` needs `arm`, and goes over lengths then; or `over`, an axis of arms")
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
        return Claim(text, kind, arm, (), terms[0].metric, 0.0, terms=tuple(terms), bounds=bounds, over=over)

    def ladder(self, text: str, kind: Kind, raw: Mapping[str, Any]) -> Claim:
        """A claim over the rungs of a ladder."""
        if RUNG not in self.factors:
            raise self.fail(f"`{kind}` is about sizes, so the study needs a `ladder`")
        arm, metric, bounds = self.arm(raw["arm"]), str(self.metric(raw["metric"], kind)), self.range(raw, kind)
        (than, *more) = self.others(raw["than"], "than", arm, kind)
        rungs = self.along(RUNG, TOKENS_PER_PARAMETER)
        wanted = str(raw.get("where", self.conditions[rungs[-1]][RUNG]))
        places = [at for at in rungs if self.conditions[at][RUNG] == wanted]
        if more:
            raise self.fail(f"`{kind}` is against one arm; make a claim for each")
        if kind == "speed_up" and wanted != NEXT and len(places) != 1:
            known = [self.conditions[at][RUNG] for at in rungs]
            hint = suggest(wanted, known)
            raise self.fail(f"`where` must be {NEXT} or one rung, {', '.join(known)}, not {quote(wanted)}{hint}")
        if kind == "speed_up" and bounds[1] <= 0:
            raise self.fail("a speed-up is a factor above 0: none could be in that range")
        terms = [Term(sign, who, metric, at) for at in rungs for sign, who in ((-1.0, arm), (1.0, than))]
        where = "" if kind == "grows" else wanted if wanted == NEXT else places[0]
        return Claim(text, kind, arm, (), metric, 0.0, terms=tuple(terms), bounds=bounds, over="size", where=where)

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
        if kind in ("diverges", "reaches") and value >= 1:
            raise self.fail(f"`margin` is a difference of rates and must be below 1, but is {quote(value)}")
        return float(value), given[0] == "relative"
