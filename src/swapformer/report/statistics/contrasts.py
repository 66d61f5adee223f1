"""Claims about sums of values, seed by seed: contrasts, slopes, optima, and trends over ordered arms.

contrast, slope   Σ weight · value, seed by seed
optimum           the place with the lowest loss on an axis, with each seed
trend             Kendall's τ between the arms' order and their values, with each seed
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from swapformer.errors import quote
from swapformer.report.derive import LR_KEY, optimum
from swapformer.report.statistics.claim_fields import RANGES, Fields, Term
from swapformer.report.statistics.claims import Claim, ClaimEstimate
from swapformer.report.statistics.comparisons import exact_value
from swapformer.report.statistics.estimates import (
    UNBOUNDED,
    AroundEstimate,
    Estimate,
    FloatArray,
    Region,
    SameModelEstimate,
    UnknownEstimate,
    exact_estimate,
    mean_estimate,
    opened,
)

if TYPE_CHECKING:
    from swapformer.report.statistics.evidence import Evidence


@dataclass(frozen=True)
class SumClaim(Claim):
    """A number computed from the values of several arms, metrics or conditions is in a range."""

    ORDERED: ClassVar[bool] = False
    """Whether a lost value could move the number either way."""

    @classmethod
    def of_terms(
        cls, text: str, kind: str, terms: Sequence[Term], bounds: Region, over: str = "", where: str = ""
    ) -> Claim:
        """The claim about these terms."""
        arms = {term.arm for term in terms}
        arm = terms[0].arm if len(arms) == 1 else "; ".join(term.name for term in terms)
        metric = terms[0].metric
        return cls(text, kind, arm, (), metric, 0.0, terms=tuple(terms), bounds=bounds, over=over, where=where)

    @abstractmethod
    def estimate(self, evidence: Evidence) -> Estimate:
        """The number, over seeds."""

    def estimates(self, evidence: Evidence) -> Sequence[ClaimEstimate]:
        if self.exact:
            found = self._exact(evidence)
        else:
            found = opened(self.estimate(evidence), *self.flattering_limits("", evidence))
        return [ClaimEstimate("", found, self.region(None, 0.0), found.limits)]

    def _exact(self, evidence: Evidence) -> Estimate:
        values = [exact_value(term.name, term.metric, evidence) for term in self.terms]
        known = [value for value in values if value is not None]
        if not known or len(known) < len(values):
            return UnknownEstimate()
        size = math.fsum(abs(term.weight * value) for term, value in zip(self.terms, known, strict=True))
        return exact_estimate(self.exact_number(known), size, self.region(None, 0.0), len(evidence.seeds))

    def exact_number(self, values: Sequence[float]) -> float:
        """The number of values that no seed changes."""
        return math.fsum(term.weight * value for term, value in zip(self.terms, values, strict=True))

    def judged_terms(self, evidence: Evidence) -> Sequence[Term]:
        """The terms that limit the verdict."""
        return self.terms

    def judged_names(self, evidence: Evidence) -> Sequence[str]:
        return tuple(dict.fromkeys(term.name for term in self.judged_terms(evidence)))

    def flattering_limits(self, than: str, evidence: Evidence) -> tuple[bool, bool]:
        return evidence.flattering_limits(self.judged_terms(evidence), self.ORDERED)

    @property
    def label(self) -> str:
        if self.over:
            return f"{self._of} of {self._sides} over {self.over}"
        several, text = len(self.metrics) > 1, ""
        for term in self.terms:
            weight = "" if abs(term.weight) == 1 else f"{abs(term.weight):g}·"
            sign = ("−" if term.weight < 0 else "") if not text else " − " if term.weight < 0 else " + "
            text += f"{sign}{weight}{term.name}{f' in {term.metric}' if several else ''}"
        return text

    @property
    def _of(self) -> str:
        """The quantity that is taken over an axis."""
        return self.kind

    @property
    def _sides(self) -> str:
        """The arms on an axis, or those of the two that are held against each other: `pre − post`."""
        several = len(self.arms) > (2 if self.spans else 1)
        return ", ".join(self.arms) if several or not self.spans else " − ".join(self.arms)


@dataclass(frozen=True)
class ContrastClaim(SumClaim):
    """Σ weight · value over arms, metrics and conditions, seed by seed."""

    KINDS: ClassVar[tuple[str, ...]] = ("contrast",)
    KEYS: ClassVar[tuple[str, ...]] = ("weights", "metric", *RANGES)
    NEEDED: ClassVar[tuple[str, ...]] = ("weights",)

    @classmethod
    def read(cls, fields: Fields, text: str, kind: str, raw: Mapping[str, Any]) -> Claim:
        bounds, weights = fields.range(raw, kind), raw["weights"]
        if not isinstance(weights, Mapping) or not weights:
            raise fields.fail(f"`weights` must map arms to numbers, such as {{h16: 1, h8: -1}}, not {quote(weights)}")
        terms = []
        for name, weight in weights.items():
            arm, condition = fields.arm_condition(name)
            of = weight if isinstance(weight, Mapping) else {raw.get("metric"): weight}
            if isinstance(weight, Mapping) and "metric" in raw:
                raise fields.fail(f"`weights` of {quote(name)} name metrics, so `metric` must be left out")
            for metric, number in of.items():
                known = fields.metric(metric, kind)
                terms.append(Term(fields.number(number, f"weight of {name}"), arm, known, condition))
        if not any(term.weight for term in terms):
            raise fields.fail("`weights` must not all be 0")
        if len({bool(term.condition) for term in terms}) > 1:
            raise fields.fail("`weights` must name a condition for every arm, or for none")
        return cls.of_terms(text, kind, terms, bounds)

    def estimate(self, evidence: Evidence) -> Estimate:
        from swapformer.report.statistics import other_text  # late: claims are read without scipy

        by_arm = self._series(evidence)
        n, metrics = len(next(iter(by_arm.values()))), self.metrics
        if len(metrics) == 1 and self._is_of_one_model(evidence):
            return SameModelEstimate(n=n)
        total = np.sum(list(by_arm.values()), axis=0)
        found = mean_estimate(total, self._range(evidence))
        if not self._scores_other_tokens(evidence):
            return found
        items = other_text.item_error(self.terms, evidence)
        if items is not None:
            return other_text.widened(found, *items)
        return found if evidence.elsewhere else opened(found, True, True)

    def _scores_other_tokens(self, evidence: Evidence) -> bool:
        """Whether its terms are scored on different tokens, which differ in how hard they are."""
        from swapformer.report.statistics import other_text  # late: claims are read without scipy

        terms = self.summands("")
        if terms is None or not all(other_text.is_over_items(term.metric) for term in terms):
            return False
        return other_text.scores_other_tokens(terms, evidence)

    def _is_of_one_model(self, evidence: Evidence) -> bool:
        """Whether arms that trained the same model cancel, so that nothing is left of the sum."""
        left: dict[str, float] = {}
        for term in self.terms:
            like = [name for name in left if evidence.same_model(name, term.name, term.metric)]
            name = term.name if term.name in left or not like else like[0]
            left[name] = left.get(name, 0.0) + term.weight
        size = sum(abs(term.weight) for term in self.terms)
        return len(left) < len(self.names) and all(abs(weight) <= 1e-9 * size for weight in left.values())

    def _series(self, evidence: Evidence) -> dict[str, FloatArray]:
        """The weighted values of each arm, over the seeds at which all of them can be compared."""
        found: dict[str, FloatArray] = {}
        for term in self.terms:
            weighted = term.weight * evidence.seed_values(term.name, term.metric)
            found[term.name] = found[term.name] + weighted if term.name in found else weighted
        kept = np.isfinite(np.sum(list(found.values()), axis=0)) & evidence.same_class(*found)
        return {name: values[kept] for name, values in found.items()}

    def _range(self, evidence: Evidence) -> Region:
        """The range of possible sums of metrics whose ranges are known, those of shares and rates among them."""
        low = high = 0.0
        for term in self.terms:
            if term.metric not in evidence.ranges and not term.metric.startswith(("val/", "test/")):
                return UNBOUNDED
            values = evidence.finite_values(term.name, term.metric)
            ends = [term.weight * end for end in evidence.range_of(term.metric, values)] if term.weight else [0.0]
            low, high = low + min(ends), high + max(ends)
        return low, high

    def summands(self, than: str) -> Sequence[Term] | None:
        return self.terms

    def notes(self, evidence: Evidence) -> list[str]:
        """What its interval holds, where its terms score other tokens."""
        from swapformer.report.statistics import other_text  # late: claims are read without scipy

        if self.exact or not self._scores_other_tokens(evidence):
            return []
        items = other_text.item_error(self.terms, evidence)
        if items is None and evidence.elsewhere:
            return ["its terms score other tokens, and the verdict is about these tokens only"]
        if items is None:
            return ["its terms score other tokens, and without sums over items nothing is known of how these differ"]
        return [f"its terms score other tokens, so its interval includes the error over {items[1]} items"]


@dataclass(frozen=True)
class SlopeClaim(ContrastClaim):
    """The least-squares slope of log metric over a logarithm: of lengths, of a key of the grid, or of arms."""

    KINDS: ClassVar[tuple[str, ...]] = ("slope",)
    KEYS: ClassVar[tuple[str, ...]] = ("arm", "than", "metric", "over", "arms", *RANGES)
    NEEDED: ClassVar[tuple[str, ...]] = ("metric",)

    @classmethod
    def read(cls, fields: Fields, text: str, kind: str, raw: Mapping[str, Any]) -> Claim:
        bounds = fields.range(raw, kind)
        if "over" in raw:
            metric, points = fields.metric(raw["metric"], kind), fields.axis(raw, kind, raw["over"])
            return cls.of_terms(text, kind, _log_slope(fields, points, metric), bounds, _axis_name(raw["over"]))
        if "arm" not in raw or "arms" in raw:
            raise fields.fail("`slope` needs `arm`, and goes over lengths then; or `over`, an axis of arms")
        slope, arm = f"slope({fields.family(raw['metric'])})", fields.arm(raw["arm"])
        others = fields.other(raw["than"], "than", arm) if "than" in raw else ()
        terms = [Term(1.0, arm, slope), *(Term(-1.0, other, slope) for other in others)]
        return cls.of_terms(text, kind, terms, bounds)

    def summands(self, than: str) -> None:
        return None


@dataclass(frozen=True)
class OptimumClaim(SumClaim):
    """The logarithm of the setting with the lowest loss, less that of another arm.

    A trial that diverged has the loss of guessing.
    """

    KINDS: ClassVar[tuple[str, ...]] = ("optimum",)
    KEYS: ClassVar[tuple[str, ...]] = SlopeClaim.KEYS
    NEEDED: ClassVar[tuple[str, ...]] = ("metric",)
    LOST = "counted with the loss of guessing"
    of_values = False
    counts_diverged = True

    @classmethod
    def read(cls, fields: Fields, text: str, kind: str, raw: Mapping[str, Any]) -> Claim:
        bounds, over = fields.range(raw, kind), raw.get("over", LR_KEY)
        metric, points = fields.metric(raw["metric"], kind), fields.axis(raw, kind, over)
        if len(points) < 3 or not points[0][0] > 0:
            xs = ", ".join(f"{x:g}" for x, _ in points)
            raise fields.fail(f"`over` of an optimum needs at least three numbers, all above 0, but has {xs}")
        terms = [replace(term, metric=f"capped({metric})", place=x) for x, found in points for term in found]
        return cls.of_terms(text, kind, terms, bounds, _axis_name(over))

    def estimate(self, evidence: Evidence) -> Estimate:
        """The mean over seeds of the place with the lowest loss on an axis, less that of the other arm, if any.

        Noise pulls the vertex of a parabola to the middle of the grid. How far it lies from the vertex of the mean
        curve is added to both limits. A seed with which the place is not known, as where the lowest loss is at an end
        of the grid, leaves both limits open.
        """
        of_means = 0.0
        total, kept = np.zeros(len(evidence.seeds)), evidence.same_class(*self.names)
        ended = np.ones(len(evidence.seeds), dtype=bool)
        for sign in sorted({term.weight for term in self.terms}):
            terms = [term for term in self.terms if term.weight == sign]
            rows = np.array([evidence.seed_values(term.name, term.metric) for term in terms])
            places = [term.place for term in terms]
            total = total + sign * np.array([optimum(places, row) for row in rows.T])
            whole = rows[:, np.isfinite(rows).all(axis=0)]
            of_means += sign * optimum(places, whole.mean(axis=1)) if whole.size else math.nan
            for term in terms:
                ended = ended & evidence.ended(term.name)
        values = total[kept & np.isfinite(total)]
        found = mean_estimate(values)
        if len(values) and math.isfinite(of_means):
            found = AroundEstimate(found, bias=abs(float(values.mean()) - of_means))
        unknown = bool((ended & kept & ~np.isfinite(total)).any())
        return opened(found, unknown, unknown)

    def flattering_limits(self, than: str, evidence: Evidence) -> tuple[bool, bool]:
        return False, False  # a trial without a result counts

    def diverged(self, name: str, evidence: Evidence) -> int:
        return int(evidence.diverged[name].sum())

    @property
    def _of(self) -> str:
        return "log optimum"


@dataclass(frozen=True)
class TrendClaim(SumClaim):
    """Kendall's τ between the arms' order and a metric: 1 where it rises from arm to arm."""

    KINDS: ClassVar[tuple[str, ...]] = ("trend",)
    KEYS: ClassVar[tuple[str, ...]] = ("arms", "metric", *RANGES)
    NEEDED: ClassVar[tuple[str, ...]] = ("arms", "metric")
    ORDERED = True

    @classmethod
    def read(cls, fields: Fields, text: str, kind: str, raw: Mapping[str, Any]) -> Claim:
        bounds, named = fields.range(raw, kind), raw["arms"] if isinstance(raw["arms"], list | tuple) else []
        metric = fields.metric(raw["metric"], kind)
        terms = [Term(float(rank), fields.arm(arm), metric) for rank, arm in enumerate(named, 1)]
        if len({term.arm for term in terms}) != len(terms) or len(terms) < 3:
            raise fields.fail(f"`arms` must name at least three different arms in their order, not {quote(named)}")
        if bounds[0] >= 1 or bounds[1] <= -1:
            raise fields.fail("a trend is Kendall's τ, which lies from -1 to 1: no trial could be in that range")
        return cls.of_terms(text, kind, terms, bounds)

    def estimate(self, evidence: Evidence) -> Estimate:
        """The mean over seeds of Kendall's τ, 0 where all arms are equal."""
        rows = np.array([evidence.seed_values(term.name, term.metric) for term in self.terms])
        whole = rows[:, np.isfinite(rows).all(axis=0) & evidence.same_class(*self.names)].T
        later, earlier = np.tril_indices(len(rows), -1)
        signs = np.sign(whole[:, later] - whole[:, earlier])
        scores, untied = signs.sum(axis=1), np.abs(signs).sum(axis=1)
        return mean_estimate(scores / np.sqrt(np.maximum(untied, 1) * len(later)), (-1.0, 1.0))

    def exact_number(self, values: Sequence[float]) -> float:
        from scipy import stats  # late: claims are read without

        return float(stats.kendalltau(range(len(values)), values).statistic) if np.ptp(values) else 0.0

    @property
    def label(self) -> str:
        return "Kendall's τ"

    @property
    def subject(self) -> str:
        return f"Kendall's τ between the order {', '.join(self.arms)} and {self.metric} is"


def _axis_name(over: Any) -> str:
    return "the numbers given" if isinstance(over, Mapping) else str(over)


def _log_slope(fields: Fields, points: Sequence[tuple[float, Sequence[Term]]], metric: str) -> list[Term]:
    """The terms whose sum is the least-squares slope of log metric over log x."""
    if not points[0][0] > 0:
        raise fields.fail(f"`over` of a slope must be above 0, for its logarithm, but is {points[0][0]:g}")
    logs = np.log([x for x, _ in points])
    weights = (logs - logs.mean()) / ((logs - logs.mean()) ** 2).sum()
    return [
        Term(float(weight) * each.weight, each.arm, f"log({metric})", each.condition)
        for weight, (_, terms) in zip(weights, points, strict=True)
        for each in terms
    ]
