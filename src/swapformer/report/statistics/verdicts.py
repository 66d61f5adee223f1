"""Verdicts on claims: supported, refuted or undecided, with a wrong one in at most 5 % of studies.

A claim i is a region of true differences (`Claim.region`), against one or J other arms.

    supported   every interval lies inside the region         (an intersection–union test: no correction over J)
    refuted     some interval lies outside the region         (any of J may do it: its limit is taken at 1/J the tail)
    undecided   otherwise, with the range of seeds that would decide

The intervals are those at `1 - level_i`, with Holm's level over the study's claims; each side carries half of it. So a
wrong verdict needs an interval that misses the truth, which happens in a family with probability at most alpha.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from swapformer.report.statistics.claims import Claim
from swapformer.report.statistics.estimates import Estimate, OpenEstimate, Region, region_p_values
from swapformer.report.statistics.evidence import Evidence
from swapformer.report.statistics.power import Range, by_effort, seeds_for
from swapformer.report.statistics.small_samples import holm_adjusted, holm_levels

VerdictOutcome = Literal["supported", "refuted", "undecided"]
ALPHA = 0.05


@dataclass(frozen=True)
class Contrast:
    """The difference arm - than of one claim, with its Holm-corrected interval and the region where the claim holds."""

    arm: str
    than: str
    estimate: Estimate
    region: Region
    lower: float
    upper: float

    @property
    def outcome(self) -> VerdictOutcome:
        """The verdict on the claim by this interval alone."""
        below, above = self.region
        if (self.lower > below or below == -math.inf) and (self.upper < above or above == math.inf):
            return "supported"
        if self.upper < below or self.lower > above:
            return "refuted"
        return "undecided"


@dataclass(frozen=True)
class Verdict:
    """The answer to one claim. `level` is Holm's: the intervals are at `1 - level`; `p` is uncorrected.

    `needed` is the range of seeds that would decide an undecided claim (None: more than 1000), or None where no number
    of seeds would; `notes` say what limits the verdict. `look` is the number of seeds at which a sequential study came
    to it, None in any other.
    """

    claim: Claim
    outcome: VerdictOutcome
    contrasts: tuple[Contrast, ...]
    level: float
    p: float
    p_adjusted: float
    needed: Range | None
    notes: tuple[str, ...]
    look: int | None = None

    @property
    def pairs(self) -> int:
        """The smallest number of paired seeds behind any of its differences."""
        return min((contrast.estimate.n for contrast in self.contrasts), default=0)


@dataclass(frozen=True)
class _UnjudgedClaim:
    """A claim with its estimates, before Holm's procedure sets the level at which it is judged."""

    claim: Claim
    than: tuple[str, ...]
    estimates: tuple[Estimate, ...]
    regions: tuple[Region, ...]
    notes: tuple[str, ...]

    def p(self) -> float:
        """The smallest level at which the claim is decided one way or the other."""
        if not self.estimates:
            return 1.0
        parts = [region_p_values(*part) for part in zip(self.estimates, self.regions, strict=True)]
        supported = max(inside for inside, _ in parts)
        refuted = len(parts) * min(outside for _, outside in parts)
        return min(1.0, 2 * min(supported, refuted))

    def judge(self, level: float, p_adjusted: float) -> Verdict:
        contrasts = tuple(
            Contrast(self.claim.arm, than, estimate, region, *_limits(estimate, region, level, len(self.than)))
            for than, estimate, region in zip(self.than, self.estimates, self.regions, strict=True)
        )
        outcome = _outcome(contrasts)
        needed = _needed(contrasts, level) if outcome == "undecided" else None
        return Verdict(self.claim, outcome, contrasts, level, self.p(), p_adjusted, needed, self.notes)


def _outcome(contrasts: Sequence[Contrast]) -> VerdictOutcome:
    outcomes = {contrast.outcome for contrast in contrasts}
    if "refuted" in outcomes:
        return "refuted"
    return "supported" if outcomes == {"supported"} else "undecided"


def judge(claims: Sequence[Claim], evidence: Evidence, alpha: float = ALPHA) -> list[Verdict]:
    """The verdicts on all claims of a study; a family-wise error of `alpha` is shared by Holm's procedure."""
    return judge_family([(claim, evidence) for claim in claims], alpha)


def judge_family(family: Sequence[tuple[Claim, Evidence]], alpha: float = ALPHA) -> list[Verdict]:
    """The verdicts on claims, each with the evidence that it is about; they share a family-wise error of `alpha`."""
    cases = [_collect(claim, evidence) for claim, evidence in family]
    p_values = [case.p() for case in cases]
    levels, adjusted = holm_levels(p_values, alpha), holm_adjusted(p_values)
    return [case.judge(*at) for case, *at in zip(cases, levels, adjusted, strict=True)]


def reconsider(verdict: Verdict, later: Evidence) -> Verdict:
    """Revises a verdict by later seeds: one that favours an arm which lost trials there is undecided again.

    Limits are only given up, so that this adds no error.
    """
    metric = verdict.claim.metric
    if metric is None or verdict.outcome == "undecided":
        return verdict
    contrasts = tuple(
        _open(contrast, *later.flattering_limits(contrast.arm, contrast.than, metric)) for contrast in verdict.contrasts
    )
    notes = tuple(dict.fromkeys((*verdict.notes, *_notes(verdict.claim, later))))
    if (outcome := _outcome(contrasts)) == verdict.outcome:
        return replace(verdict, notes=notes)
    return replace(verdict, outcome=outcome, contrasts=contrasts, notes=notes, p=1.0, p_adjusted=1.0)


def _open(contrast: Contrast, below: bool, above: bool) -> Contrast:
    """The contrast with its limit below or above given up."""
    estimate = OpenEstimate(contrast.estimate, below, above)
    lower, upper = -math.inf if below else contrast.lower, math.inf if above else contrast.upper
    return replace(contrast, estimate=estimate, lower=lower, upper=upper) if below or above else contrast


def _collect(claim: Claim, evidence: Evidence) -> _UnjudgedClaim:
    direction = evidence.directions.get(claim.metric or "")
    notes = list(_notes(claim, evidence))
    missing = [arm for arm in (claim.arm, *claim.than) if arm not in evidence.arms]
    than = claim.than
    if claim.of_best:
        than = tuple(arm for arm in than if arm in evidence.arms and not evidence.never_finished(arm))
    undirected = claim.needs_direction and direction is None
    if claim.arm in missing or (missing and not claim.of_best) or undirected or not than:
        if undirected:
            notes.append(f"no finished trial says which direction of {claim.metric} is good")
        return _UnjudgedClaim(claim, (), (), (), tuple(notes))
    relative = claim.margin if claim.relative else 0.0
    estimates, regions = [], []
    for other in than:
        if claim.metric is None:
            estimates.append(evidence.rate_difference(claim.arm, other))
            regions.append(claim.region(None, 0.0))
            continue
        estimates.append(evidence.mean_difference(claim.arm, other, claim.metric, relative))
        pairs = evidence.pairs(claim.arm, other, claim.metric)
        regions.append(claim.region(direction, float(pairs.y.mean()) if len(pairs.y) else math.nan))
    return _UnjudgedClaim(claim, than, tuple(estimates), tuple(regions), tuple(notes))


def _notes(claim: Claim, evidence: Evidence) -> list[str]:
    notes = []
    for arm in (claim.arm, *claim.than):
        if arm not in evidence.arms:
            notes.append(f"{arm} is impossible")
            continue
        if claim.metric is None:
            continue
        lost = "out of the race for the best" if claim.of_best and evidence.never_finished(arm) else "not favoured"
        diverged, unmeasured = evidence.diverged[arm].sum(), evidence.unmeasured(arm, claim.metric).sum()
        if diverged:
            notes.append(f"{arm} diverged with {diverged} of {len(evidence.seeds)} seeds: {lost}")
        if unmeasured:
            notes.append(f"{arm} has no finite {claim.metric} with {unmeasured} of {len(evidence.seeds)} seeds: {lost}")
    for other in claim.than:
        if {claim.arm, other} <= set(evidence.arms) and evidence.same_model(claim.arm, other, claim.metric):
            notes.append(f"{claim.arm} and {other} trained the same model")
    apart = set[int]()
    for other in claim.than:
        if claim.metric is not None and {claim.arm, other} <= set(evidence.arms):
            apart |= set(evidence.pairs(claim.arm, other, claim.metric).apart)
    notes += [
        f"{claim.arm} and {other} were not evaluated on the same data: {name} has {here} and {there}"
        for other in claim.than
        if claim.metric is not None
        for name, (here, there) in evidence.evaluated_apart(claim.arm, other, claim.metric).items()
    ]
    if apart:
        seeds = ", ".join(map(str, sorted(apart)))
        notes.append(f"not paired, because the environment classes differ: seed {seeds}")
    return notes


def _limits(estimate: Estimate, region: Region, level: float, arms: int) -> tuple[float, float]:
    """The interval at `1 - level`; the limit that can only refute has the tail of one of `arms` (Bonferroni)."""
    below, above = region
    refuting = level / 2 / arms
    lower_tail = refuting if below == -math.inf else level / 2
    upper_tail = refuting if above == math.inf else level / 2
    return estimate.lower(lower_tail), estimate.upper(upper_tail)


def _needed(contrasts: Sequence[Contrast], level: float) -> Range | None:
    """The seeds that would decide: the hardest of the differences that lean to yes, or the easiest that leans to no."""
    leaning_no = [c for c in contrasts if not c.region[0] < c.estimate.value < c.region[1]]
    chosen = [seeds_for(c.estimate, c.region, level / len(contrasts) if leaning_no else level) for c in
              (leaning_no or [c for c in contrasts if c.outcome == "undecided"])]  # fmt: skip
    known = [found for found in chosen if found is not None]
    if leaning_no:
        return min(known, key=by_effort) if known else None
    return max(known, key=by_effort) if known and len(known) == len(chosen) else None
