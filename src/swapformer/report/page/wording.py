"""Claims and verdicts in words; shared by the page, the terminal and `--json`."""

from __future__ import annotations

import math

from swapformer.report import number_format
from swapformer.report.statistics.claims import Claim
from swapformer.report.statistics.estimates import OpenEstimate, SameModelEstimate
from swapformer.report.statistics.verdicts import Contrast, Verdict

SYMBOLS = {"supported": "✓", "refuted": "✗", "depends": "±", "undecided": "?"}
COLORS = {"supported": "green", "refuted": "red", "undecided": "yellow", "depends": "magenta"}
"""The colours of outcomes on a terminal."""


def claim_text(claim: Claim) -> str:
    """What exactly was claimed: `h1 is worse than h8 in val/loss, by more than 0.01`."""
    others = "any other arm" if claim.of_best else number_format.listed(claim.than)
    size = number_format.percent(claim.margin) if claim.relative else number_format.compact(claim.margin)
    if claim.kind == "diverges":
        return f"{claim.arm} diverges more often than {others}, by more than {size} as a difference of rates"
    if claim.kind == "within":
        if claim.of_best:
            return f"{claim.arm} is less than {size} worse in {claim.metric} than {others}"
        return f"{claim.arm} and {others} differ in {claim.metric} by less than {size}"
    return f"{claim.arm} is {claim.kind} than {others} in {claim.metric}, by more than {size}"


def contrast_text(contrast: Contrast) -> str:
    """A difference with its arms: `h1 − h8 = +0.143 [+0.121, +0.165]`."""
    return f"{contrast.arm} − {contrast.than} = {difference_text(contrast)}"


def difference_text(contrast: Contrast) -> str:
    """The estimated difference with its corrected interval."""
    ends = (contrast.estimate.value, contrast.lower, contrast.upper)
    if math.isnan(contrast.estimate.value):
        return "unknown"
    return f"{number_format.value_text(*ends, signed=True)} {number_format.limits_text(*ends, signed=True)}"


def verdict_text(verdict: Verdict) -> str:
    """Why the verdict is what it is, and what would change it."""
    if not verdict.contrasts:
        return "There is nothing to compare: " + ("; ".join(verdict.notes) or "no trials") + "."
    several = len(verdict.contrasts) > 1
    if verdict.outcome == "supported":
        return ("Every interval lies" if several else "The whole interval lies") + " where the claim holds."
    if verdict.outcome == "refuted":
        against = number_format.listed([c.than for c in verdict.contrasts if c.outcome == "refuted"])
        return "The whole interval lies where the claim does not hold" + (f" (against {against})." if several else ".")
    undecided = [c for c in verdict.contrasts if c.outcome == "undecided"]
    where = f" against {len(undecided)} of {len(verdict.contrasts)} arms" if several else ""
    if same := [c for c in undecided if isinstance(c.estimate, SameModelEstimate)]:
        needs = f"{same[0].arm} and {same[0].than} trained the same model, so their difference is no evidence"
    elif verdict.pairs < 2:
        few = min(undecided, key=lambda contrast: contrast.estimate.n)
        needs = f"there are {few.estimate.n} paired seeds of {few.arm} and {few.than}, and at least 2 are needed"
    elif verdict.needed is not None:
        needs = number_format.seeds_text(verdict.needed)
    elif any(isinstance(contrast.estimate, OpenEstimate) for contrast in undecided):
        needs = "a mean over survivors cannot speak for an arm that diverged; claim `diverges` instead"
    else:
        needs = "no number of seeds of this kind would"
    return f"The data do not decide{where}: {needs}."
