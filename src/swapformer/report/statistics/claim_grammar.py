"""The grammar of claims: parses and checks those of a study file, each mistake with one clear line."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from swapformer.errors import UsageError, quote, suggest
from swapformer.report.derive import exact_of, ways_of
from swapformer.report.statistics.claim_fields import Fields
from swapformer.report.statistics.claims import Claim
from swapformer.report.statistics.comparisons import DivergesClaim, MeanClaim, ReachesClaim, WithinClaim
from swapformer.report.statistics.contrasts import ContrastClaim, OptimumClaim, SlopeClaim, TrendClaim
from swapformer.report.statistics.ladder_claims import GrowsClaim, SpeedUpClaim
from swapformer.results.arms import Values
from swapformer.results.manifest import Manifest

KINDS: Mapping[str, type[Claim]] = {
    kind: each
    for each in (
        MeanClaim, WithinClaim, DivergesClaim, ReachesClaim, ContrastClaim, SlopeClaim, OptimumClaim, TrendClaim,
        SpeedUpClaim, GrowsClaim,
    )
    for kind in each.KINDS
}  # fmt: skip
"""Every kind of claim, with the class that reads and judges it."""
_GONE = {"first": "`reaches`, or `better`", "lr_sensitivity": "`optimum`, or a `contrast` of the rates of a grid"}
"""Kinds of an older version, with what to say now."""


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
    exact = exact_of(ways_of(manifest.derive, manifest.claims), manifest.exact, manifest.metrics)
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
        found = named.body(text.strip(), kinds[0], raw[kinds[0]])
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

    def body(self, text: str, kind: str, raw: Any) -> Claim:
        of = KINDS[kind]
        if not isinstance(raw, Mapping):
            raise self.fail(f"`{kind}` must be a mapping with {', '.join(of.KEYS)}, but is {quote(raw)}")
        for key in raw:
            if key not in of.KEYS:
                raise self.fail(f"`{kind}` has no key {quote(key)}{suggest(str(key), of.KEYS)}")
        for key in of.NEEDED:
            if key not in raw:
                raise self.fail(f"`{kind}` needs `{key}`")
        return of.read(self, text, kind, raw)
