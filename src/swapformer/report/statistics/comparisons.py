"""Claims that compare an arm with others: by their means, or by how many of their seeds diverge or reach a value."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from swapformer.errors import UsageError
from swapformer.ranges import NonNegative, complaint, fits
from swapformer.report import number_format
from swapformer.report.statistics.claim_fields import RANGES, Fields, Term, difference
from swapformer.report.statistics.claims import Claim, ClaimEstimate
from swapformer.report.statistics.estimates import (
    UNBOUNDED,
    BoolArray,
    Estimate,
    Region,
    SameModelEstimate,
    ShareEstimate,
    UnknownEstimate,
    exact_estimate,
    rates_estimate,
)

if TYPE_CHECKING:
    from swapformer.report.statistics.evidence import Evidence

BEST = "best"
_REACHABLE: Mapping[str, Region] = {
    **dict.fromkeys(("accuracy", "exact_match", "macro_f1", "calibration_error"), (0.0, 1.0)),
    **dict.fromkeys(("loss", "bits_per_byte", "mae"), (0.0, math.inf)),
    "perplexity": (1.0, math.inf),
    "r2": (-math.inf, 1.0),
}
"""The values that a metric of a split can take, by its name without a length."""


@dataclass(frozen=True)
class MeanClaim(Claim):
    """The mean of one arm is worse, better, lower or higher than those of others."""

    KINDS: ClassVar[tuple[str, ...]] = ("worse", "better", "lower", "higher")
    KEYS: ClassVar[tuple[str, ...]] = ("arm", "than", "metric", "margin")

    @classmethod
    def read(cls, fields: Fields, text: str, kind: str, raw: Mapping[str, Any]) -> Claim:
        arm = fields.arm(raw["arm"])
        than, metric = fields.others(raw["than"], "than", arm), fields.metric(raw["metric"], kind)
        found = cls(text, kind, arm, than, metric, _margin(fields, raw, kind))
        return _directed(fields, found)

    @property
    def of_means(self) -> bool:
        return not self.exact

    @property
    def needs_direction(self) -> bool:
        return self.kind in ("worse", "better")

    def region(self, direction: str | None, reference: float) -> Region:
        above = self.kind in ("higher", "worse" if direction != "higher" else "better")
        return (self.margin, math.inf) if above else (-math.inf, -self.margin)

    def margin_width(self, reference: float) -> float:
        """The margin in the units of the metric, given the mean of the arm that is compared with."""
        return self.margin * abs(reference) if self.relative else self.margin

    def others(self, evidence: Evidence) -> tuple[str, ...]:
        """The arms that it is held against."""
        return self.than

    def estimates(self, evidence: Evidence) -> Sequence[ClaimEstimate]:
        return [self._against(other, evidence) for other in self.others(evidence)]

    def _against(self, other: str, evidence: Evidence) -> ClaimEstimate:
        metric = str(self.metric)
        direction, usual = evidence.directions.get(metric), evidence.mean_difference(self.arm, other, metric).limits
        if self.exact:
            here, there = (exact_value(arm, metric, evidence) for arm in (self.arm, other))
            estimate: Estimate = UnknownEstimate()
            region = self.region(direction, math.nan if there is None else there)
            if here is not None and there is not None:
                estimate = exact_estimate(here - there, abs(here) + abs(there), region, len(evidence.seeds))
            return ClaimEstimate(other, estimate, region, usual)
        values = evidence.pairs(self.arm, other, metric).y
        reference = float(values.mean()) if len(values) else math.nan
        if self.relative and not math.isfinite(reference):  # a share of what is not known
            return ClaimEstimate(other, UnknownEstimate(), self.region(direction, 0.0), usual)
        estimate = evidence.mean_difference(self.arm, other, metric, self.margin if self.relative else 0.0)
        return ClaimEstimate(other, estimate, self.region(direction, reference), usual)

    def flattering_limits(self, than: str, evidence: Evidence) -> tuple[bool, bool]:
        return evidence.flattering_limits(difference(self.arm, than, str(self.metric)))

    def summands(self, than: str) -> Sequence[Term] | None:
        return None if self.relative or self.exact else difference(self.arm, than, str(self.metric))

    @property
    def assertion(self) -> str:
        others = number_format.listed(self.than)
        return f"{self.arm} is {self.kind} than {others} in {self.metric}, by more than {self.size}"

    @property
    def label(self) -> str:
        return self.arm


@dataclass(frozen=True)
class WithinClaim(MeanClaim):
    """The mean of one arm differs from another's by less than a margin, or is less than it worse than the best."""

    KINDS: ClassVar[tuple[str, ...]] = ("within",)
    is_about_zero = False
    KEYS: ClassVar[tuple[str, ...]] = ("arm", "of", "metric", "margin", "relative")
    NEEDED: ClassVar[tuple[str, ...]] = ("arm", "of", "metric")

    @classmethod
    def read(cls, fields: Fields, text: str, kind: str, raw: Mapping[str, Any]) -> Claim:
        arm, of_best = fields.arm(raw["arm"]), raw["of"] == BEST and BEST not in fields.arms
        than = tuple(each for each in fields.arms if each != arm) if of_best else fields.other(raw["of"], "of", arm)
        if not than:
            raise fields.fail("`of: best` needs at least one other arm in the study")
        given = [key for key in ("margin", "relative") if key in raw]
        metric = fields.metric(raw["metric"], kind)
        if len(given) != 1:
            got = " and ".join(given) or "none"
            raise fields.fail(f"`{kind}` needs exactly one of `margin` and `relative`, got {got}")
        margin = _non_negative(fields, raw, given[0])
        if margin == 0:
            raise fields.fail(f"`{given[0]}` of a `within` must be above 0: nothing is shown to be exactly equal")
        return _directed(fields, cls(text, kind, arm, than, metric, margin, given[0] == "relative", of_best))

    @property
    def needs_direction(self) -> bool:
        return self.of_best

    def region(self, direction: str | None, reference: float) -> Region:
        """`best` is at least as good as any arm, so a difference to it has only one sign: that region has one edge."""
        margin = self.margin_width(reference)
        if not self.of_best:
            return -margin, margin
        return (-margin, math.inf) if direction == "higher" else (-math.inf, margin)

    def others(self, evidence: Evidence) -> tuple[str, ...]:
        if not self.of_best:
            return self.than
        known = [arm for arm in self.than if arm in evidence.arms]
        return tuple(arm for arm in known if not evidence.never_finished(arm, str(self.metric)))

    def is_missing(self, evidence: Evidence) -> bool:
        return self.arm not in evidence.arms if self.of_best else super().is_missing(evidence)

    def lost(self, name: str, evidence: Evidence) -> str:
        never = self.of_best and evidence.never_finished(name, str(self.metric))
        return "out of the race for the best" if never else self.LOST

    @property
    def assertion(self) -> str:
        if self.of_best:
            return f"{self.arm} is less than {self.size} worse in {self.metric} than any other arm"
        return f"{self.arm} and {number_format.listed(self.than)} differ in {self.metric} by less than {self.size}"

    @property
    def threshold(self) -> str:
        return f"less than {self.size}"

    @property
    def comparative(self) -> str:
        return ""


@dataclass(frozen=True)
class DivergesClaim(Claim):
    """A share of an arm's seeds diverges, or more of them than of another's."""

    KINDS: ClassVar[tuple[str, ...]] = ("diverges",)
    KEYS: ClassVar[tuple[str, ...]] = ("arm", "than", "margin", *RANGES)
    NEEDED: ClassVar[tuple[str, ...]] = ("arm",)
    of_values = False
    counts_diverged = True

    @classmethod
    def read(cls, fields: Fields, text: str, kind: str, raw: Mapping[str, Any]) -> Claim:
        arm, metric, value = fields.arm(raw["arm"]), *cls.asked(fields, raw, kind)
        than = fields.others(raw["than"], "than", arm) if "than" in raw else ()
        if than and ("margin" in raw or not any(key in raw for key in RANGES)):
            if (margin := _margin(fields, raw, kind)) >= 1:
                raise fields.fail(f"`margin` is a difference of rates and must be below 1, but is {margin:g}")
            return _directed(fields, cls(text, kind, arm, than, metric, margin, value=value))
        wanted = [key for key in cls.KEYS if key in (*RANGES, "share")]
        if "margin" in raw or not any(key in raw for key in wanted):
            given = "`share`" if "share" in wanted else " or ".join(f"`{key}`" for key in wanted)
            raise fields.fail(f"`{kind}` needs {given}, or `than` with a `margin` of rates")
        bounds = _shares(fields, raw, kind, -1.0 if than else 0.0)
        return _directed(fields, cls(text, kind, arm, than, metric, 0.0, value=value, bounds=bounds))

    @classmethod
    def asked(cls, fields: Fields, raw: Mapping[str, Any], kind: str) -> tuple[str | None, float]:
        """The metric that must reach a value, and the value."""
        return None, math.nan

    def region(self, direction: str | None, reference: float) -> Region:
        return self.bounds or (self.margin, math.inf)

    def counted(self, arm: str, evidence: Evidence) -> BoolArray:
        """The seeds of an arm that are counted."""
        return evidence.diverged[arm]

    def known(self, arm: str, evidence: Evidence) -> BoolArray:
        """The seeds of an arm of which it is known whether they count."""
        return evidence.ended(arm)

    def estimates(self, evidence: Evidence) -> Sequence[ClaimEstimate]:
        region = self.region(None, 0.0)
        if not self.than:
            known = self.known(self.arm, evidence)
            n, count = int(known.sum()), int((self.counted(self.arm, evidence) & known).sum())
            share: Estimate = ShareEstimate(count, n) if n else UnknownEstimate()
            return [ClaimEstimate("", share, region, share.limits)]
        found = [(other, self._difference(other, evidence)) for other in self.than]
        return [ClaimEstimate(other, estimate, region, estimate.limits) for other, estimate in found]

    def _difference(self, other: str, evidence: Evidence) -> Estimate:
        """The difference in how often seeds of its arm count and another's, over the seeds that ended in both."""
        both = self.known(self.arm, evidence) & self.known(other, evidence) & evidence.same_class(self.arm, other)
        if evidence.same_model(self.arm, other, self.metric):
            return SameModelEstimate(n=int(both.sum()))
        return rates_estimate(self.counted(self.arm, evidence)[both], self.counted(other, evidence)[both])

    @property
    def label(self) -> str:
        return f"share of {self.arm}"

    @property
    def subject(self) -> str:
        than = f" less that of {number_format.listed(self.than)}" if self.than else ""
        return f"the share of seeds of {self.arm} that {self._verb}{than} is"

    @property
    def _verb(self) -> str:
        return "diverge"

    @property
    def assertion(self) -> str:
        if self.bounds is not None:
            return super().assertion
        others = number_format.listed(self.than)
        return f"{self.arm} diverges more often than {others}, by more than {self.size} as a difference of rates"


@dataclass(frozen=True)
class ReachesClaim(DivergesClaim):
    """A share of an arm's seeds reaches a value, or more of them than of another's.

    A trial that diverged or has no number does not reach it, nor does one whose time to a target was cut off at the
    value or later. Of times that are cut off before, the share is not known.
    """

    KINDS: ClassVar[tuple[str, ...]] = ("reaches",)
    KEYS: ClassVar[tuple[str, ...]] = ("arm", "than", "metric", "value", "share", "margin", *RANGES)
    NEEDED: ClassVar[tuple[str, ...]] = ("arm", "metric", "value")
    LOST = "counted as the worst"

    @classmethod
    def asked(cls, fields: Fields, raw: Mapping[str, Any], kind: str) -> tuple[str | None, float]:
        metric, value = fields.metric(raw["metric"], kind), fields.number(raw["value"], "value")
        split, _, name = metric.partition("/")
        least, most = _REACHABLE.get(name.partition("@")[0], UNBOUNDED) if split in ("val", "test") else UNBOUNDED
        if not least <= value <= most:
            raise fields.fail(
                f"`value` must be one that {metric} can take, from {least:g} to {most:g}, but is {value:g}"
            )
        return metric, value

    @property
    def needs_direction(self) -> bool:
        return True

    def known(self, arm: str, evidence: Evidence) -> BoolArray:
        """A trial that finished without a time has no target, as where that is another arm's value that is missing."""
        metric, found = str(self.metric), super().known(arm, evidence)
        return found & ~evidence.unmeasured(arm, metric) if metric in evidence.censored else found

    def estimates(self, evidence: Evidence) -> Sequence[ClaimEstimate]:
        return [
            each
            if not any(self._cut_short(arm, evidence).any() for arm in (self.arm, each.than) if arm)
            else replace(each, estimate=UnknownEstimate(), usual=UNBOUNDED)
            for each in super().estimates(evidence)
        ]

    def _cut_short(self, arm: str, evidence: Evidence) -> BoolArray:
        """The seeds whose time was cut off before the value, by a shorter training of whichever arm."""
        metric = str(self.metric)
        return evidence.cut_times(arm, metric) & (evidence.seed_values(arm, metric) < self.value)

    def notes(self, evidence: Evidence) -> list[str]:
        metric = str(self.metric)
        short = {arm: evidence.seed_values(arm, metric)[self._cut_short(arm, evidence)] for arm in self.names}
        return [
            f"{arm} is not known to reach it or not: the shortest training of all arms cuts {metric} off at "
            f"{number_format.stated(float(values.min()))}; ask for that, or train all arms as long"
            for arm, values in short.items()
            if len(values)
        ]

    def counted(self, arm: str, evidence: Evidence) -> BoolArray:
        metric = str(self.metric)
        values = evidence.seed_values(arm, metric)
        higher = evidence.directions.get(metric) == "higher"
        with np.errstate(invalid="ignore"):
            reached = values >= self.value if higher else values <= self.value
        return np.asarray(reached & np.isfinite(values) & ~evidence.cut_times(arm, metric), dtype=bool)

    @property
    def _verb(self) -> str:
        return f"reach {self.metric} of {number_format.stated(self.value)}"

    @property
    def assertion(self) -> str:
        if self.bounds is not None:
            return super().assertion
        others = number_format.listed(self.than)
        return (
            f"more seeds of {self.arm} than of {others} {self._verb}, by more than {self.size} as a difference of rates"
        )


def exact_value(arm: str, metric: str, evidence: Evidence) -> float | None:
    """The value of an exact metric, the same with every seed; None if missing."""
    values = evidence.finite_values(arm, metric)
    if len(values) and np.ptp(values) > 0:
        raise UsageError(
            f"{metric} is said to be `exact`, but {arm} has {values.min():g} with one seed and {values.max():g} with "
            "another; take it out of `exact`, and it is judged over seeds"
        )
    return float(values[0]) if len(values) else None


def _directed(fields: Fields, claim: Claim) -> Claim:
    if claim.needs_direction and str(claim.metric).startswith("probe/"):
        raise fields.fail(f"{claim.metric} has no good direction; use `lower`, `higher` or `within` of an arm")
    return claim


def _margin(fields: Fields, raw: Mapping[str, Any], kind: str) -> float:
    got = [key for key in ("margin", "share", *RANGES) if key in raw]
    if got != ["margin"]:
        raise fields.fail(f"`{kind}` needs a `margin` (0 or more), got {' and '.join(got) or 'none'}")
    return _non_negative(fields, raw, "margin")


def _non_negative(fields: Fields, raw: Mapping[str, Any], key: str) -> float:
    if not fits(NonNegative, raw[key]):
        raise fields.fail(complaint(NonNegative, raw[key], key).rstrip("."))
    return float(raw[key])


def _shares(fields: Fields, raw: Mapping[str, Any], kind: str, least: float) -> Region:
    """A range of shares of seeds, from `least` to 1."""
    if "share" in raw:
        share = fields.number(raw["share"], "share")
        if not 0 <= share < 1:
            raise fields.fail(f"`share` is a share of the seeds and must be from 0 to below 1, but is {share}")
        if any(key in raw for key in RANGES):
            raise fields.fail(f"`share` of `{kind}` means `above`: remove one of them")
        return share, math.inf
    bounds = fields.range(raw, kind)
    if bounds[0] >= 1 or bounds[1] <= least:
        raise fields.fail(f"`{kind}` is about shares of seeds, from {least:g} to 1: none could be in that range")
    return bounds
