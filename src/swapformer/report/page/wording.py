"""Claims and verdicts in words; shared by the page, the terminal and `--json`."""

from __future__ import annotations

import math
from collections.abc import Sequence

from swapformer.report import number_format
from swapformer.report.statistics.arm_summary import ArmRow
from swapformer.report.statistics.claims import Claim
from swapformer.report.statistics.contrasts import label
from swapformer.report.statistics.estimates import OpenEstimate, SameModelEstimate
from swapformer.report.statistics.pairing import Pairing
from swapformer.report.statistics.power import SeedRange
from swapformer.report.statistics.verdicts import Contrast, Verdict

SYMBOLS = {"supported": "✓", "refuted": "✗", "depends": "±", "undecided": "?"}
COLORS = {"supported": "green", "refuted": "red", "undecided": "yellow", "depends": "magenta"}
"""The colours of outcomes on a terminal."""


def claim_text(claim: Claim) -> str:
    """What exactly was claimed: `h1 is worse than h8 in val/loss, by more than 0.01`."""
    others = "any other arm" if claim.of_best else number_format.listed(claim.than)
    size = number_format.percent(claim.margin) if claim.relative else number_format.compact(claim.margin)
    if claim.kind == "diverges" and claim.bounds is None:
        return f"{claim.arm} diverges more often than {others}, by more than {size} as a difference of rates"
    if claim.bounds is not None:
        return f"{_subject(claim)} {_range_text(claim.bounds)}"
    if claim.kind == "reaches":
        how = f"{claim.metric} of {number_format.compact(claim.value)}"
        return f"more seeds of {claim.arm} than of {others} reach {how}, by more than {size} as a difference of rates"
    if claim.kind == "within":
        if claim.of_best:
            return f"{claim.arm} is less than {size} worse in {claim.metric} than {others}"
        return f"{claim.arm} and {others} differ in {claim.metric} by less than {size}"
    return f"{claim.arm} is {claim.kind} than {others} in {claim.metric}, by more than {size}"


def _subject(claim: Claim) -> str:
    """What a claim with a range is about."""
    than = f" less that of {number_format.listed(claim.than)}" if claim.than else ""
    if claim.kind == "reaches":
        how = f"{claim.metric} of {number_format.compact(claim.value)}"
        return f"the share of seeds of {claim.arm} that reach {how}{than} is"
    if claim.kind == "diverges":
        return f"the share of seeds of {claim.arm} that diverge{than} is"
    if claim.kind == "trend":
        return f"Kendall's τ between the order {', '.join(claim.arms)} and {claim.metric} is"
    what = "" if len(claim.metrics) > 1 else f" in {claim.metric}"
    return f"{label(claim)}{what} is"


def _range_text(bounds: tuple[float, float]) -> str:
    low, high = bounds
    if math.isinf(low):
        return f"below {number_format.compact(high)}"
    above = number_format.compact(low)
    return f"above {above}" if math.isinf(high) else f"between {above} and {number_format.compact(high)}"


def contrast_text(contrast: Contrast) -> str:
    """A difference with its arms: `h1 − h8 = +0.143 [+0.121, +0.165]`."""
    return f"{name_text(contrast)} = {difference_text(contrast)}"


def name_text(contrast: Contrast) -> str:
    """What was estimated: `h1 − h8`."""
    return f"{contrast.arm} − {contrast.than}" if contrast.than else contrast.arm


def difference_text(contrast: Contrast) -> str:
    """The estimated difference with its corrected interval."""
    estimate = contrast.estimate
    if math.isnan(estimate.value):
        return "unknown"
    return number_format.difference_text(estimate.value, contrast.usual, (contrast.lower, contrast.upper))


def ends_text(verdict: Verdict) -> str:
    """With which error each end of the intervals of a verdict is a limit."""
    if verdict.claim.exact:
        return "exact: arithmetic decides, at no share of the error"
    (below, above), several = verdict.contrasts[0].errors, len(verdict.contrasts) > 1
    ends = "each interval" if several else "the interval"
    if below == above:
        return f"either end of {ends} errs with {number_format.percent(below)}"
    supports, refutes = ("lower", "upper") if below > above else ("upper", "lower")
    return (
        f"the {supports} end of {ends} errs with {number_format.percent(max(below, above))}; the {refutes} end can "
        f"only refute, as any of {len(verdict.contrasts)} may, and errs with {number_format.percent(min(below, above))}"
    )


def pairing_text(metric: str, pairing: Pairing) -> str:
    """How differences in a metric are taken, and why."""
    how = "paired by seed" if pairing.paired else "taken between means, not paired by seed (Welch)"
    return f"Differences in {metric} are {how}: {pairing.reason}."


def table_note(rows: Sequence[ArmRow], baseline: str) -> str:
    """What the table of results shows in a cell."""
    summaries = [one for row in rows for one in row.summaries.values()]
    compared = {one.metric for one in summaries if one.paired is not None}
    means = list(dict.fromkeys(one.metric for one in summaries if one.paired is not None and not one.paired.paired))
    how = "paired by seed" if len(means) < len(compared) or not compared else "between means (Welch)"
    if 0 < len(means) < len(compared):
        how += f" but in {number_format.listed(means)}, where it is between means (Welch)"
    text = (
        f"Mean over finished trials with its 95 % t interval; Δ is the difference to {baseline}, {how}, "
        "with its 95 % t interval (not corrected for several comparisons; the verdicts are). "
        "A round bracket is an open end: an arm that diverged is not flattered by its survivors."
    )
    if any(one.n > 1 and one.seed_error == 0 for one in summaries):
        text += (
            " Values that are the same with every seed have no t interval: where they lie in [0, 1], theirs allows for "
            "other values that are too rare to have been seen."
        )
    return text


HEADLINE = {"supported": "Yes", "refuted": "No", "depends": "It depends", "undecided": "Not decided"}
"""How a headline calls an outcome."""
MOST_SAID = 4
"""Claims of one outcome that a headline names."""


def headline(claims: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """What a study found in plain words, from each claim's text and outcome: `Yes` → `a; b; and 3 more`."""
    found = []
    for outcome, called in HEADLINE.items():
        texts = [text for text, other in claims if other == outcome]
        more = f"; and {len(texts) - MOST_SAID} more" if len(texts) > MOST_SAID else ""
        if texts:
            found.append((called, "; ".join(texts[:MOST_SAID]) + more))
    return found


_OPPOSITE = {"better": "worse", "worse": "better", "higher": "lower", "lower": "higher"}


def refuted_text(verdict: Verdict) -> str:
    """What the refutation of a claim about two arms means: `not better by 0.01`, or the opposite; empty for others."""
    claim = verdict.claim
    if claim.kind not in _OPPOSITE or len(verdict.contrasts) != 1 or verdict.outcome != "refuted":
        return ""
    (contrast,) = verdict.contrasts
    above = math.isinf(contrast.region[1])  # the claim holds above an edge
    if contrast.upper < 0 if above else contrast.lower > 0:
        return f"The opposite: {claim.arm} is {_OPPOSITE[claim.kind]} than {contrast.than}."
    size = number_format.percent(claim.margin) if claim.relative else number_format.compact(claim.margin)
    by = f" by {size}" if claim.margin else ""
    return f"{claim.arm} is not {claim.kind} than {contrast.than}{by}."


def verdict_text(verdict: Verdict) -> str:
    """Why the verdict is what it is, and what would change it."""
    if not verdict.contrasts:
        return "There is nothing to compare: " + ("; ".join(verdict.notes) or "no trials") + "."
    several = len(verdict.contrasts) > 1
    if verdict.outcome == "supported":
        return ("Every interval lies" if several else "The whole interval lies") + " where the claim holds."
    if verdict.outcome == "refuted" and (plain := refuted_text(verdict)):
        return plain
    if verdict.outcome == "refuted":
        against = number_format.listed([c.than for c in verdict.contrasts if c.outcome == "refuted"])
        return "The whole interval lies where the claim does not hold" + (f" (against {against})." if several else ".")
    undecided = [c for c in verdict.contrasts if c.outcome == "undecided"]
    where = f" against {len(undecided)} of {len(verdict.contrasts)} arms" if several else ""
    if same := [c for c in undecided if isinstance(c.estimate, SameModelEstimate)]:
        who = f"{same[0].arm} and {same[0].than}" if same[0].than else f"arms of {same[0].arm}"
        needs = f"{who} trained the same model, so their difference is no evidence"
    elif verdict.pairs < 2:
        few = min(undecided, key=lambda contrast: contrast.estimate.n)
        of = f"paired seeds of {few.arm} and {few.than}" if few.than else f"seeds with {few.arm}"
        needs = f"there are {few.estimate.n} {of}, and at least 2 are needed"
    elif verdict.needed is not None:
        needs = seeds_text(verdict.needed)
    elif any(isinstance(contrast.estimate, OpenEstimate) for contrast in undecided):
        needs = "a mean over survivors cannot speak for an arm that diverged; claim `diverges` instead"
    else:
        needs = "no number of seeds of this kind would"
    return f"The data do not decide{where}: {needs}."


def seeds_text(needed: SeedRange) -> str:
    """How many seeds would decide a claim, and with which probability."""
    low, high = needed.low, needed.high
    if low is None:
        return "more than 1000 seeds would be needed: the difference lies too close to the edge of the claim"
    text = f"{low} or many more seeds would decide" if high is None else f"{low} to {high} seeds would decide"
    text = f"about {low} seeds would decide" if low == high else text
    known = {
        n: number_format.percent(min(round(chance, 2), 0.99))
        for n, chance in zip((low, high), needed.chances, strict=True)
        if n is not None and not math.isnan(chance)
    }
    if not known:
        return text
    chances = " and ".join(f"{n} with probability {chance}" for n, chance in known.items())
    return f"{text} ({chances}, if the observed difference and spread were the true ones)"
