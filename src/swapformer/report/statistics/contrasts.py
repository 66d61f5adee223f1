"""Estimates of what claims are about beside the difference of two means: contrasts, trends, and rates of seeds.

contrast, slope   Σ weight · value, seed by seed
trend             Kendall's τ between the arms' order and their values, with each seed (`bounded`)
reaches           the seeds whose value is as good as asked; a trial that diverged or has no number is not
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from scipy import special, stats

from swapformer.errors import UsageError
from swapformer.report.derive import optimum
from swapformer.report.statistics.bounded import censored_estimate, trend_estimate
from swapformer.report.statistics.claims import OVER_LADDER, OVER_TRIALS, Claim
from swapformer.report.statistics.estimates import (
    UNBOUNDED,
    BiasedEstimate,
    Estimate,
    FloatArray,
    OpenEstimate,
    Region,
    SameModelEstimate,
    UnknownEstimate,
    mean_estimate,
)
from swapformer.report.statistics.evidence import BoolArray, Evidence
from swapformer.report.statistics.ladder import claim_estimate, judged_terms
from swapformer.report.statistics.other_text import item_error, scores_other_tokens, summands, widened
from swapformer.report.statistics.rates import RateEstimate


@dataclass(frozen=True)
class ExactEstimate(Estimate):
    """A number that no seed changes: arithmetic decides, without error."""

    value: float
    n: int

    def p_above(self, x: float) -> float:
        return 0.0 if self.value > x else 1.0

    def lower(self, tail: float) -> float:
        return self.value

    def negate(self) -> ExactEstimate:
        return ExactEstimate(-self.value, self.n)


@dataclass(frozen=True)
class ShareEstimate(Estimate):
    """A share of seeds: `count` of n, with the exact binomial limits of Clopper and Pearson (1934)."""

    count: int
    n: int

    @property
    def value(self) -> float:  # type: ignore[override]
        return self.count / self.n

    def p_above(self, x: float) -> float:
        if self.count == 0 or x >= 1:
            return 1.0
        return 0.0 if x < 0 else float(special.bdtrc(self.count - 1, self.n, x))

    def lower(self, tail: float) -> float:
        return float(special.betaincinv(self.count, self.n - self.count + 1, tail)) if self.count else 0.0

    def p_below(self, x: float) -> float:
        return ShareEstimate(self.n - self.count, self.n).p_above(1 - x)

    def upper(self, tail: float) -> float:
        return 1 - ShareEstimate(self.n - self.count, self.n).lower(tail)

    def negate(self) -> Estimate:
        raise NotImplementedError("both sides of a share are its own")


def estimate(claim: Claim, evidence: Evidence) -> Estimate:
    """The estimate for a claim that is not about the difference of two means."""
    if claim.exact:
        return _exact(claim, evidence)
    if claim.kind in OVER_LADDER:
        found = claim_estimate(claim, evidence)
    elif claim.kind == "trend":
        found = _trend(claim, evidence)
    elif claim.kind in OVER_TRIALS:
        return _over_trials(claim, evidence)
    elif claim.terms:
        found = _contrast(claim, evidence)
    else:
        ended = evidence.ended(claim.arm)
        reached = evidence.diverged[claim.arm] if claim.metric is None else reached_seeds(claim, claim.arm, evidence)[0]
        n = int(ended.sum())
        return ShareEstimate(int(reached.sum()), n) if n else UnknownEstimate()
    below, above = flattering_limits(claim, evidence)
    return OpenEstimate(found, below, above) if below or above else found


def exact_difference(claim: Claim, than: str, evidence: Evidence) -> Estimate:
    """The difference of an exact metric."""
    assert claim.metric is not None, "a metric that is exact has a name"
    here, there = (exact_value(arm, claim.metric, evidence) for arm in (claim.arm, than))
    return UnknownEstimate() if here is None or there is None else ExactEstimate(here - there, len(evidence.seeds))


def exact_value(arm: str, metric: str, evidence: Evidence) -> float | None:
    """The value of an exact metric, the same with every seed; None where there is none."""
    values = evidence.finite_values(arm, metric)
    if len(values) and np.ptp(values) > 0:
        raise UsageError(
            f"{metric} is said to be `exact`, but {arm} has {values.min():g} with one seed and {values.max():g} with "
            "another; take it out of `exact`, and it is judged over seeds"
        )
    return float(values[0]) if len(values) else None


def _exact(claim: Claim, evidence: Evidence) -> Estimate:
    values = [exact_value(term.name, term.metric, evidence) for term in claim.terms]
    known = [value for value in values if value is not None]
    if not known or len(known) < len(values):
        return UnknownEstimate()
    if claim.kind == "trend":
        return ExactEstimate(float(stats.kendalltau(range(len(known)), known).statistic), len(evidence.seeds))
    total = math.fsum(term.weight * value for term, value in zip(claim.terms, known, strict=True))
    return ExactEstimate(total, len(evidence.seeds))


def reached_seeds(claim: Claim, arm: str, evidence: Evidence) -> tuple[BoolArray, BoolArray]:
    """The seeds with which an arm reaches the claim's value, and those with which its trials ended."""
    assert claim.metric is not None, "what is reached is a metric"
    values = evidence.seed_values(arm, claim.metric)
    higher = evidence.directions.get(claim.metric) == "higher"
    with np.errstate(invalid="ignore"):
        reached = values >= claim.value if higher else values <= claim.value
    return np.asarray(reached & np.isfinite(values), dtype=bool), evidence.ended(arm)


def reach_difference(claim: Claim, than: str, evidence: Evidence) -> Estimate:
    """How much more often than another arm's the seeds of the claim's arm reach its value."""
    (here, ended), (there, too) = (reached_seeds(claim, arm, evidence) for arm in (claim.arm, than))
    if evidence.same_model(claim.arm, than, claim.metric):
        return SameModelEstimate(n=int(ended.sum()))
    both = ended & too & evidence.same_class(claim.arm, than)
    n = int(both.sum())
    return RateEstimate(int((here & ~there & both).sum()), int((there & ~here & both).sum()), n) if n > 1 else (
        UnknownEstimate(n=n)
    )  # fmt: skip


def _series(claim: Claim, evidence: Evidence) -> dict[str, FloatArray]:
    """The weighted values of each arm of a contrast, over the seeds at which all of them can be compared."""
    found: dict[str, FloatArray] = {}
    for term in claim.terms:
        weighted = term.weight * evidence.seed_values(term.name, term.metric)
        found[term.name] = found[term.name] + weighted if term.name in found else weighted
    names = list(found)
    kept = np.isfinite(np.sum(list(found.values()), axis=0))
    for name in names[1:]:
        kept &= evidence.same_class(names[0], name)
    return {name: values[kept] for name, values in found.items()}


def _contrast(claim: Claim, evidence: Evidence) -> Estimate:
    by_arm = _series(claim, evidence)
    if len(claim.metrics) == 1 and any(evidence.same_model(*two, claim.metrics[0]) for two in combinations(by_arm, 2)):
        return SameModelEstimate(n=len(next(iter(by_arm.values()))))
    if evidence.none_reached([(term.name, term.metric) for term in claim.terms]):
        return UnknownEstimate(n=len(next(iter(by_arm.values()))))
    total = np.sum(list(by_arm.values()), axis=0)
    found = mean_estimate(total, _bounds(claim, evidence))
    terms = summands(claim, "")
    if (
        terms is not None
        and scores_other_tokens(terms, evidence)
        and (items := item_error(terms, evidence)) is not None
    ):
        found = widened(found, *items)
    return censored_estimate(total, found) if evidence.censored.intersection(claim.metrics) else found


def _over_trials(claim: Claim, evidence: Evidence) -> Estimate:
    """The mean over seeds of the place with the lowest loss on an axis, less that of the other arm, if any.

    Noise pulls the vertex of a parabola to the middle of the grid. How far it lies from the vertex of the mean curve is
    added to both limits. A seed with which the place is not known, as where the lowest loss is at an end of the grid,
    leaves both limits open.
    """
    of_means = 0.0
    total, kept = np.zeros(len(evidence.seeds)), np.ones(len(evidence.seeds), dtype=bool)
    ended = np.ones(len(evidence.seeds), dtype=bool)
    for sign in sorted({term.weight for term in claim.terms}):
        terms = [term for term in claim.terms if term.weight == sign]
        rows = np.array([evidence.seed_values(term.name, term.metric) for term in terms])
        places = [term.place for term in terms]
        total = total + sign * np.array([optimum(places, row) for row in rows.T])
        whole = rows[:, np.isfinite(rows).all(axis=0)]
        of_means += sign * optimum(places, whole.mean(axis=1)) if whole.size else math.nan
        for term in terms:
            kept = kept & evidence.same_class(claim.terms[0].name, term.name)
            ended = ended & evidence.ended(term.name)
    values = total[kept & np.isfinite(total)]
    found = mean_estimate(values)
    if len(values) and math.isfinite(of_means):
        found = BiasedEstimate(found, abs(float(values.mean()) - of_means))
    unknown = bool((ended & kept & ~np.isfinite(total)).any())
    return OpenEstimate(found, True, True) if unknown else found


def _bounds(claim: Claim, evidence: Evidence) -> Region:
    """The range of possible sums of metrics whose ranges are known, those of shares and rates among them."""
    low = high = 0.0
    for term in claim.terms:
        if term.metric not in evidence.ranges and not term.metric.startswith(("val/", "test/")):
            return UNBOUNDED
        values = evidence.finite_values(term.name, term.metric)
        ends = [term.weight * end for end in evidence.range_of(term.metric, values)] if term.weight else [0.0]
        low, high = low + min(ends), high + max(ends)
    return low, high


def _trend(claim: Claim, evidence: Evidence) -> Estimate:
    """The mean over seeds of Kendall's τ, 0 where all arms are equal."""
    rows = np.array([evidence.seed_values(term.name, term.metric) for term in claim.terms])
    whole = rows[:, np.isfinite(rows).all(axis=0)].T
    later, earlier = np.tril_indices(len(rows), -1)
    signs = np.sign(whole[:, later] - whole[:, earlier])
    scores, untied = signs.sum(axis=1), np.abs(signs).sum(axis=1)
    return trend_estimate(scores / np.sqrt(np.maximum(untied, 1) * len(later)), scores, len(rows))


def flattering_limits(claim: Claim, evidence: Evidence) -> tuple[bool, bool]:
    """Whether the limits of a contrast below and above would flatter an arm that lost trials, or has no times."""
    below = above = False
    terms = judged_terms(claim, evidence) if claim.kind in OVER_LADDER else claim.terms
    for term in terms:
        if evidence.never_reached(term.name, term.metric):  # its mean may be lower, and never higher
            below, above = below or term.weight > 0, above or term.weight < 0
        if not evidence.lost(term.name, term.metric).any():
            continue
        direction = evidence.directions.get(term.metric)
        if direction is None or claim.kind in ("trend", "grows"):
            return True, True
        raised = (direction == "lower") == (term.weight > 0)  # what was lost would raise the sum
        below, above = below or not raised, above or raised
    return below, above


def _sides(claim: Claim) -> str:
    """The arms on an axis, or those of the two that are held against each other: `pre − post`."""
    several = len(claim.arms) > (2 if claim.spans else 1)
    return ", ".join(claim.arms) if several or not claim.spans else " − ".join(claim.arms)


def label(claim: Claim) -> str:
    """What is estimated, in words: `2·h16 − h8`."""
    if claim.kind == "trend":
        return "Kendall's τ"
    if claim.kind in OVER_LADDER:
        arm, than = claim.arms
        of = f"speed-up of {arm} over {than}"
        return f"slope of the log {of}" if claim.kind == "grows" else f"{of} at {claim.where}"
    if claim.over:
        of = "slope" if claim.kind == "slope" else "log optimum"
        return f"{of} of {_sides(claim)} over {claim.over}"
    if not claim.terms:
        return f"share of {claim.arm}"
    several = len(claim.metrics) > 1
    text = ""
    for term in claim.terms:
        weight = "" if abs(term.weight) == 1 else f"{abs(term.weight):g}·"
        sign = ("−" if term.weight < 0 else "") if not text else " − " if term.weight < 0 else " + "
        text += f"{sign}{weight}{term.name}{f' in {term.metric}' if several else ''}"
    return text
