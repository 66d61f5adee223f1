"""Verdicts on claims: supported, refuted or undecided, with a wrong one in at most 5 % of studies.

A claim i is a region of true differences (`Claim.region`), against one or J other arms.

    supported   every interval lies inside the region         (an intersection–union test: no correction over J)
    refuted     some interval lies outside the region         (any of J may do it: its limit is taken at 1/J the error)
    undecided   otherwise, with the range of seeds that would decide

A claim is true or false, so only one of the two verdicts can be wrong, and each may err with all of `level_i`, Holm's
level over the study's claims. The ends of an interval are therefore one-sided limits with errors of their own
(`Contrast.errors`): `level_i` where an end supports, `level_i / J` where it refutes. Of a region with two edges, both
ends support while the estimate lies inside, at `level_i`; outside, either may refute, at half of what is left for it.
At an edge of 0 the level is shared by both verdicts: without any difference “better” and “the opposite” are both wrong.

Holm's procedure errs with probability alpha at most where claims are independent. Where they are not, no proof covers
that verdicts have two directions; `docs/statistics.md` says what was simulated.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from swapformer.report import number_format
from swapformer.report.statistics import failing_seeds
from swapformer.report.statistics.claims import Claim, ClaimEstimate
from swapformer.report.statistics.estimates import (
    Estimate,
    MeanEstimate,
    Region,
    is_within,
    opened,
    parts_of_level,
    region_p_values,
)
from swapformer.report.statistics.evidence import Evidence
from swapformer.report.statistics.holm import holm_adjusted, holm_levels
from swapformer.report.statistics.other_text import Elsewhere, item_error, widened
from swapformer.report.statistics.power import SeedRange, seeds_for

VerdictOutcome = Literal["supported", "refuted", "undecided"]
ALPHA = 0.05
"""In at most this share of studies any verdict is wrong, over all looks."""
FIRST = 0.8
"""The part of the error that the stated seeds may take; the rest is for looks after them."""
RESERVED = 0.5
"""The part of that which a study takes that reserves error for claims that are stated later."""


@dataclass(frozen=True)
class Contrast:
    """The difference arm - than of one claim, with its limits and the region where the claim holds.

    `errors`: the probability with which each limit may miss the true difference, below and above. `usual`: the 95 %
    limits that tables and figures show of the same difference, of no claim and not corrected for several.
    """

    arm: str
    than: str
    estimate: Estimate
    region: Region
    errors: tuple[float, float]
    usual: tuple[float, float]

    @property
    def lower(self) -> float:
        return self.estimate.lower(self.errors[0])

    @property
    def upper(self) -> float:
        return self.estimate.upper(self.errors[1])

    @property
    def outcome(self) -> VerdictOutcome:
        """The verdict on the claim by this interval only."""
        below, above = self.region
        estimate, (lower, upper) = self.estimate, self.errors
        if self.lower == self.upper:  # exact
            return "supported" if below < self.lower < above else "refuted"
        inside = [(estimate.p_above(below), lower)] if below != -math.inf else []
        inside += [(estimate.p_below(above), upper)] if above != math.inf else []
        outside = [(estimate.p_below(below), upper)] if below != -math.inf else []
        outside += [(estimate.p_above(above), lower)] if above != math.inf else []
        if all(is_within(p, error) for p, error in inside):
            return "supported"
        return "refuted" if any(is_within(p, error) for p, error in outside) else "undecided"


@dataclass(frozen=True)
class Verdict:
    """The answer to one claim. `level` is Holm's: the error of the verdict; `p` is uncorrected, of the side that the
    estimates lie on.

    `needed` is the range of seeds that would decide an undecided claim, or None where no number of seeds would; `notes`
    say what limits the verdict. `look` is the number of seeds at which a sequential study came to it, None in others.
    `elsewhere`: whether it would be the same with the error over evaluated items added; empty where that is not known.
    `qualifiers`: what weakens it, in words that stand in its own line. `doubts`: why it may be wrong more often than
    its level says, which holds for seeds that are roughly normal.
    """

    claim: Claim
    outcome: VerdictOutcome
    contrasts: tuple[Contrast, ...]
    level: float
    p: float
    p_adjusted: float
    needed: SeedRange | None
    notes: tuple[str, ...]
    look: int | None = None
    elsewhere: Elsewhere = ""
    qualifiers: tuple[str, ...] = ()
    doubts: tuple[str, ...] = ()

    @property
    def pairs(self) -> int:
        """The smallest number of paired seeds behind any of its differences."""
        return min((contrast.estimate.n for contrast in self.contrasts), default=0)

    @property
    def leans_true(self) -> bool:
        """Whether the estimates agree with the claim: then `p` is for it, otherwise against it."""
        return all(_inside(each.estimate, each.region) for each in self.contrasts)


@dataclass(frozen=True)
class _UnjudgedClaim:
    """A claim with its estimates, before Holm's procedure sets the level at which it is judged.

    `barred`: nothing is judged, since the baseline has not beaten what it must.
    """

    claim: Claim
    estimates: tuple[ClaimEstimate, ...]
    notes: tuple[str, ...]
    barred: bool

    def p(self) -> float:
        """The smallest level at which the claim is decided, to the side of the estimates."""
        if not self.estimates or self.barred:
            return 1.0
        parts = [(each.estimate, each.region) for each in self.estimates]
        if all(_inside(*part) for part in parts):
            return min(1.0, max(parts_of_level(part[1])[0] * region_p_values(*part)[0] for part in parts))
        refuted = [parts_of_level(region)[1] * region_p_values(estimate, region)[1] for estimate, region in parts]
        return min(1.0, len(parts) * min(refuted))

    def judge(self, level: float, p: float, p_adjusted: float, next_level: float) -> Verdict:
        contrasts = []
        for each in self.estimates:
            errors = _errors(each.estimate, each.region, level, len(self.estimates))
            named = self.claim.arm if each.than else self.claim.label
            contrasts.append(Contrast(named, each.than, each.estimate, each.region, errors, each.usual))
        outcome = "undecided" if self.barred else _outcome(contrasts)
        needed = _needed(contrasts, next_level) if outcome == "undecided" and not self.barred else None
        return Verdict(self.claim, outcome, tuple(contrasts), level, p, p_adjusted, needed, self.notes)


def _outcome(contrasts: Sequence[Contrast]) -> VerdictOutcome:
    outcomes = {contrast.outcome for contrast in contrasts}
    if "refuted" in outcomes:
        return "refuted"
    return "supported" if outcomes == {"supported"} else "undecided"


def judge(claims: Sequence[Claim], evidence: Evidence, alpha: float = ALPHA) -> list[Verdict]:
    """The verdicts on all claims of a study; a family-wise error of `alpha` is shared by Holm's procedure."""
    return judge_family([(claim, evidence) for claim in claims], alpha)


def judge_family(
    family: Sequence[tuple[Claim, Evidence]], alpha: float = ALPHA, next_alpha: float | None = None, others: int = 0
) -> list[Verdict]:
    """The verdicts on claims, each with the evidence that it is about; they share a family-wise error of `alpha`.

    `next_alpha`: that of a look at more seeds, by which it is said how many would decide; None for the same. `others`:
    claims that share the error and of which nothing is known.
    """
    judged = sum(not claim.exact for claim, _ in family) + others
    cases = [_collect(claim, evidence, alpha / max(judged, 1)) for claim, evidence in family]
    p_values = [case.p() for case in cases]
    shared = [index for index, case in enumerate(cases) if not case.claim.exact]
    of_shared = [*(p_values[index] for index in shared), *[1.0] * others]
    corrected = dict(
        zip(shared, zip(holm_levels(of_shared, alpha), holm_adjusted(of_shared), strict=True), strict=False)
    )
    share = 1.0 if next_alpha is None else next_alpha / alpha
    found = []
    for index, case in enumerate(cases):
        level, p_adjusted = corrected.get(index, (0.0, 0.0))
        found.append(case.judge(level, p_values[index], p_adjusted, level * share))
    return [
        replace(
            _with_items(verdict, evidence),
            qualifiers=tuple(_qualifiers(verdict.claim, evidence)),
            doubts=tuple(_doubts(verdict, evidence)),
        )
        for verdict, (_, evidence) in zip(found, family, strict=True)
    ]


def _doubts(verdict: Verdict, evidence: Evidence) -> list[str]:
    """Why a decided verdict may be wrong more often than its level says."""
    claim = verdict.claim
    known = claim.of_means and all(name in evidence.arms for name in claim.names)
    return failing_seeds.doubts(claim, evidence) if known and verdict.outcome != "undecided" else []


def _qualifiers(claim: Claim, evidence: Evidence) -> list[str]:
    """What weakens a verdict on a claim, however it is decided."""
    last = {name: evidence.last_steps[name] for name in claim.judged_names(evidence) if name in evidence.last_steps}
    if len(set(last.values())) < 2:
        return []
    steps = number_format.listed([f"{name} at {step:g}" for name, step in last.items()])
    return [f"but the arms end at different steps ({steps})"]


def _with_items(verdict: Verdict, evidence: Evidence) -> Verdict:
    """The verdict with a word on other text, where the items of all that it is about were kept."""
    if verdict.outcome == "undecided" or verdict.claim.exact:
        return verdict
    wider = []
    for contrast in verdict.contrasts:
        terms = verdict.claim.summands(contrast.than)
        found = None if terms is None else item_error(terms, evidence)
        if found is None:
            return verdict
        wider.append(replace(contrast, estimate=widened(contrast.estimate, *found)))
    holds = _outcome(wider) == verdict.outcome
    if evidence.generated:
        return replace(verdict, elsewhere="on other samples too" if holds else "on these samples only")
    return replace(verdict, elsewhere="on other text too" if holds else "on this text only")


def reconsider(verdict: Verdict, later: Evidence) -> Verdict:
    """Revises a verdict by later seeds: one that favours an arm which lost trials there is undecided again.

    Limits are only given up, so that this adds no error.
    """
    metric = verdict.claim.metric
    if metric is None or verdict.outcome == "undecided":
        return verdict
    if verdict.claim.counts_diverged or verdict.claim.exact:
        return verdict  # there, a trial without a result counts
    contrasts = tuple(
        replace(each, estimate=opened(each.estimate, *verdict.claim.flattering_limits(each.than, later)))
        for each in verdict.contrasts
    )
    notes = tuple(dict.fromkeys((*verdict.notes, *_notes(verdict.claim, later))))
    if (outcome := _outcome(contrasts)) == verdict.outcome:
        return replace(verdict, notes=notes)
    return replace(verdict, outcome=outcome, contrasts=contrasts, notes=notes, p=1.0, p_adjusted=1.0, elsewhere="")


def _collect(claim: Claim, evidence: Evidence, level: float) -> _UnjudgedClaim:
    notes, barred = _notes(claim, evidence, level), bool(evidence.unbeaten) and not claim.exact
    if claim.needs_direction and evidence.directions.get(claim.metric or "") is None:
        notes.append(f"no finished trial says which direction of {claim.metric} is good")
        return _UnjudgedClaim(claim, (), tuple(notes), barred)
    found = () if claim.is_missing(evidence) else tuple(claim.estimates(evidence))
    return _UnjudgedClaim(claim, found, tuple(notes), barred)


def _notes(claim: Claim, evidence: Evidence, level: float | None = None) -> list[str]:
    """What limits a verdict; at a `level` also what its seeds leave open."""
    notes = [] if claim.exact else list(evidence.unbeaten)
    for name in claim.judged_names(evidence):
        if name not in evidence.arms:
            notes.append(f"{name} is impossible")
        elif claim.metrics:
            metric = max(claim.metrics, key=lambda each: evidence.unmeasured(name, each).sum())
            lost, unmeasured = claim.lost(name, evidence), evidence.unmeasured(name, metric).sum()
            ended = evidence.ended(name).sum()
            if diverged := claim.diverged(name, evidence):
                notes.append(f"{name} diverged with {diverged} of {ended} seeds: {lost}")
            if unmeasured:
                without = "left out" if claim.counts_diverged and metric in evidence.censored else lost
                notes.append(f"{name} has no finite {metric} with {unmeasured} of {ended} seeds: {without}")
    known = [other for other in claim.than if {claim.arm, other} <= set(evidence.arms)]
    same = [other for other in known if evidence.same_model(claim.arm, other, claim.metric)]
    notes += [f"{claim.arm} and {other} trained the same model" for other in same]
    apart = evidence.terms_apart(claim.terms) if claim.terms and not claim.exact else set()
    for other in known:
        if claim.metric is None:
            continue
        apart |= set(evidence.pairs(claim.arm, other, claim.metric).apart)
        notes += _seed_notes(claim, other, claim.metric, evidence)
    notes += [
        f"{claim.arm} and {other} were not evaluated on the same data: {name} has {here} and {there}"
        for other in claim.than
        if claim.metric is not None
        for name, (here, there) in evidence.evaluated_apart(claim.arm, other, claim.metric).items()
    ]
    if claim.metric in evidence.censored:
        notes += _target_notes(claim, evidence)
    notes += claim.notes(evidence)
    if apart:
        seeds = ", ".join(map(str, sorted(apart)))
        notes.append(f"not paired, because the environment classes differ: seed {seeds}")
    missing = set(claim.names) - set(evidence.arms)
    if same or missing or not claim.of_means or level is None:
        return notes
    return notes + failing_seeds.notes(claim, evidence, level)


def _seed_notes(claim: Claim, other: str, metric: str, evidence: Evidence) -> list[str]:
    """Notes for a claim on two arms that do not have the same seeds."""
    arm = claim.arm
    if not evidence.are_unpaired(arm, other, metric):
        return [
            f"{count} seeds of {one} are left out: the other arm was not trained with them"
            for one, count in evidence.left_out(arm, other, metric).items()
        ]
    counts = {each: evidence.finite_values(each, metric) for each in (arm, other)}
    few = [each for each, values in counts.items() if len(values) == 1]
    if not claim.of_means or claim.relative:
        return [f"{arm} and {other} have no seed to pair, so nothing is compared"]
    if not few:
        return [f"unpaired: {arm} and {other} have no seed to pair, and are compared as independent samples"]
    (one, many) = (few[0], other if few[0] == arm else arm)
    if len(counts[many]) < 2:
        return []
    n = len(counts[many])
    mean, spread = float(counts[many].mean()), float(counts[many].std(ddof=1))
    low, high = MeanEstimate(mean, n, spread * math.sqrt(1 + 1 / n)).limits  # of one more value
    inside = "inside" if low <= counts[one][0] <= high else "outside"
    return [
        f"the one seed of {one} lies {inside} what one more seed of {many} would give in 95 % of cases "
        f"({number_format.interval(low, high, number_format.decimals_for(counts[one][0], low, high))}); that is no "
        "verdict"
    ]


def _target_notes(claim: Claim, evidence: Evidence) -> list[str]:
    """Notes on times to a target that trials of a claim's arms did not reach."""
    about = [(name, metric) for name in claim.names for metric in claim.metrics if metric in evidence.censored]
    cut = [(name, evidence.unreached_count(name, metric)) for name, metric in about]
    found = [
        f"{name} does not reach the target of {claim.metric} with {count} of {evidence.ended(name).sum()} seeds: they "
        "count as cut off, min(T, horizon)"
        for name, count in cut
        if count
    ]
    if (mostly := evidence.cut_off(about)) and not claim.counts_diverged:
        found.append(
            f"half of the times of {number_format.listed(mostly)} or more are cut off, so their mean is not judged: "
            "put a target that is reached, or claim `reaches` with it"
        )
    return found


def _inside(estimate: Estimate, region: Region) -> bool:
    return region[0] < estimate.value < region[1]


def _errors(estimate: Estimate, region: Region, level: float, arms: int) -> tuple[float, float]:
    """The errors of the limits below and above, where any of `arms` may refute."""
    supports, refutes = parts_of_level(region)
    supporting, refuting = level / supports, level / (refutes * arms)
    if math.isfinite(region[0]) and math.isfinite(region[1]):
        return (supporting, supporting) if _inside(estimate, region) else (refuting, refuting)
    return (supporting, refuting) if region[0] != -math.inf else (refuting, supporting)


def _needed(contrasts: Sequence[Contrast], level: float) -> SeedRange | None:
    """The seeds that would decide: the hardest of the differences that lean to yes, or the easiest that leans to no."""
    leaning_no = [c for c in contrasts if not _inside(c.estimate, c.region)]
    chosen = leaning_no or [c for c in contrasts if c.outcome == "undecided"]
    found = []
    for contrast in chosen:
        supports, refutes = parts_of_level(contrast.region)
        error = level / (refutes * len(contrasts)) if leaning_no else level / supports
        found.append(seeds_for(contrast.estimate, contrast.region, error))
    known = [each for each in found if each is not None]
    if leaning_no:
        return min(known, key=lambda each: each.effort) if known else None
    return max(known, key=lambda each: each.effort) if known and len(known) == len(found) else None
