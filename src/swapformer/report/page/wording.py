"""Claims and verdicts in words; shared by the page, the terminal and `--json`."""

from __future__ import annotations

import math
from collections.abc import Sequence

from swapformer.report import number_format
from swapformer.report.statistics.arm_summary import ArmRow
from swapformer.report.statistics.claims import Claim
from swapformer.report.statistics.estimates import AroundEstimate, IdenticalEstimate, SameModelEstimate, is_within
from swapformer.report.statistics.evidence import NOT_JUDGED
from swapformer.report.statistics.grid import GridVerdict
from swapformer.report.statistics.power import SeedRange
from swapformer.report.statistics.statements import AFTERWARDS
from swapformer.report.statistics.verdicts import Contrast, Verdict

SYMBOLS = {"supported": "✓", "refuted": "✗", "depends": "±", "undecided": "?"}
COLORS = {"supported": "green", "refuted": "red", "undecided": "yellow", "depends": "magenta"}
"""The colours of outcomes on a terminal."""


def contrast_text(contrast: Contrast) -> str:
    """A difference with its arms: `h1 − h8 = +0.143 [+0.121, +0.165]`."""
    return f"{name_text(contrast)} = {difference_text(contrast)}"


def name_text(contrast: Contrast) -> str:
    """The estimated quantity: `h1 − h8`."""
    return f"{contrast.arm} − {contrast.than}" if contrast.than else contrast.arm


def usual_text(contrast: Contrast) -> str:
    """A difference with its arms and its 95 % interval, which other claims do not widen."""
    value = contrast.estimate.value
    if math.isnan(value):
        return f"{name_text(contrast)} unknown"
    if contrast.lower == contrast.upper:
        return f"{name_text(contrast)} = {_exact(value)}"
    return f"{name_text(contrast)} = {number_format.difference_text(value, contrast.usual)}"


def difference_text(contrast: Contrast) -> str:
    """The estimated difference with its corrected interval."""
    estimate = contrast.estimate
    if math.isnan(estimate.value):
        return "unknown"
    return number_format.difference_text(estimate.value, contrast.usual, (contrast.lower, contrast.upper))


def _exact(value: float) -> str:
    """An exact number: counts in full, others in three digits."""
    return number_format.stated(value) if value.is_integer() else number_format.compact(value)


def items_text(verdicts: Sequence[Verdict]) -> str:
    """A sentence where nothing is known of other text; empty where it is known of every verdict that could tell."""
    decided = [v for v in verdicts if v.outcome != "undecided" and v.claim.of_values and not v.claim.exact]
    if not decided or any(each.elsewhere for each in decided):
        return ""
    return "Other text or samples: not known, since no sums over evaluated items were kept."


def error_text(errors: Sequence[float], verdicts: Sequence[Verdict]) -> str:
    """How likely any verdict is wrong, over all looks, which took these errors; empty without claims.

    Where seeds do not look normal, it says that this is not known.
    """
    every = [each for each in verdicts if not each.claim.exact]
    judged = [each for each in every if AFTERWARDS not in each.qualifiers]
    late = len(every) - len(judged)
    marked = "the verdict" if late == 1 else f"any of the {late} verdicts"
    unknown = f"The chance that {marked} marked “{AFTERWARDS}” is wrong is not known." if late else ""
    if not judged:
        return unknown
    these, this = ("the other", "the other") if late else ("these", "this")
    which = f"any of {these} {len(judged)} verdicts is wrong" if len(judged) > 1 else f"{this} verdict is wrong"
    most = number_format.percent(math.fsum(errors))
    doubts = list(dict.fromkeys(doubt for each in judged for doubt in each.doubts))
    if doubts:
        more = f", and {len(doubts) - MOST_DOUBTS} more" if len(doubts) > MOST_DOUBTS else ""
        text = (
            f"For roughly normal seeds the chance that {which} would be at most {most}. Here it may be larger: "
            f"{'; '.join(doubts[:MOST_DOUBTS])}{more}."
        )
    else:
        text = f"The chance that {which} is at most {most}, if seeds are roughly normal."
    text = f"{text} {unknown}".rstrip()
    if len(errors) < 2:
        return text
    return f"{text} Judged at {len(errors)} looks ({number_format.listed([number_format.percent(e) for e in errors])})."


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


def table_note(rows: Sequence[ArmRow], baseline: str) -> str:
    """The explanation of the cells of a table of results."""
    summaries = [one for row in rows for one in row.summaries.values()]
    apart = list(dict.fromkeys(one.arm for one in summaries if one.paired is not None and not one.paired.paired))
    how = "paired by seed" + (f" (unpaired: {number_format.listed(apart)}, which share none)" if apart else "")
    text = (
        f"Means over finished trials with 95 % t intervals; Δ is the difference to {baseline}, {how}. A round bracket "
        "is an open end: an arm that lost trials is not flattered by its survivors."
    )
    if any(one.n > 1 and one.seed_error == 0 for one in summaries):
        text += (
            " Where all seeds agree on a value in [0, 1], its interval allows for others too rare to have been seen."
        )
    return text


HEADLINE = {"supported": "Found", "refuted": "Refuted", "depends": "By condition", "undecided": "Not decided"}
"""How a headline calls an outcome."""
MOST_DOUBTS = 2
"""Reasons to doubt the error that are named."""
MOST_SAID = 4
"""Claims of one outcome that a headline names."""


def headline(claims: Sequence[GridVerdict]) -> list[tuple[str, str]]:
    """The findings of a study in plain words: `Found` → `a; b; and 3 more`.

    Of a refuted claim about two arms it is what holds in its place, so that nobody has to turn a claim round.
    """
    texts: dict[str, list[str]] = {called: [] for called in HEADLINE.values()}
    for each in claims:
        instead = _instead(each) if each.outcome == "refuted" else ""
        late = any(AFTERWARDS in verdict.qualifiers for verdict in each.verdicts.values())
        text = (instead or each.claim.text) + (f" ({AFTERWARDS})" if late else "")
        texts[HEADLINE["supported" if instead else each.outcome]].append(text)
    return [
        (called, "; ".join(said[:MOST_SAID]) + (f"; and {len(said) - MOST_SAID} more" if len(said) > MOST_SAID else ""))
        for called, said in texts.items()
        if said
    ]


def _instead(found: GridVerdict) -> str:
    """The finding that replaces a refuted claim about two arms, `mine is better by 0.18`; empty for others."""
    verdicts = list(found.verdicts.values())
    if len(verdicts) != 1 or len(verdicts[0].contrasts) != 1 or not found.claim.of_means:
        return ""
    claim, (contrast,) = found.claim, verdicts[0].contrasts
    (condition,) = found.verdicts
    where = f" with {condition}" if condition and not claim.spans else ""
    if not claim.opposite:
        return f"{claim.arm} and {contrast.than} differ in {claim.metric}{where}: {usual_text(contrast)}"
    size = number_format.compact(abs(contrast.estimate.value))
    if _is_opposite(contrast):
        return f"{claim.arm} is {claim.opposite} than {contrast.than} in {claim.metric}{where}, by {size}"
    return refuted_text(verdicts[0]).rstrip(".") + where


def found_text(verdict: Verdict) -> str:
    """The reason why a claim is decided or open, in one sentence: `by at least 0.30 (claimed: 0.05)`.

    The limits are those of the verdict, whose error all claims of a study share; intervals elsewhere are 95 % ones.
    Where there were several looks, it says how many seeds the claim was judged at.
    """
    if verdict.claim.withdrawn:
        return f"withdrawn: {verdict.claim.withdrawn}"
    if not verdict.contrasts:
        return verdict_text(verdict)
    if barred := [note for note in verdict.notes if note.startswith(NOT_JUDGED)]:
        return barred[0]
    claim, several = verdict.claim, len(verdict.contrasts) > 1
    shown = [c for c in verdict.contrasts if c.outcome == verdict.outcome] or list(verdict.contrasts)
    if verdict.outcome == "supported":
        shown = list(verdict.contrasts)
    parts = [_limit_text(claim, each) + (f" than {each.than}" if several and each.than else "") for each in shown]
    text = f"{'; '.join(parts)} (claimed: {claim.threshold})"
    text += f", {verdict.elsewhere}" if verdict.elsewhere else ""
    text += f", at {verdict.look} seeds" if verdict.look else ""
    text += "".join(f", {each}" for each in verdict.qualifiers)
    if verdict.outcome == "undecided":
        text += f": {_needs_text(verdict)}"
    return text


def _limit_text(claim: Claim, contrast: Contrast) -> str:
    """The limits of one difference that say what was found, counted in the direction of the claim."""
    value, lower, upper = contrast.estimate.value, contrast.lower, contrast.upper
    if math.isnan(value):
        return "unknown"
    digits = number_format.decimals_for(value, *contrast.usual)
    if not any(map(math.isfinite, contrast.usual)):
        digits = number_format.decimals(abs(value) / 100) if value else 1
    limits = [end for end in (lower, upper) if math.isfinite(end)]
    edges = [edge for edge in (*contrast.region, 0.0) if math.isfinite(edge)]
    while digits < 12 and any(_side(round(end, digits), edge) != _side(end, edge) for end in limits for edge in edges):
        digits += 1  # a limit is not printed on the other side of what was claimed

    def shown(x: float, signed: bool = False) -> str:
        return number_format.number(x, digits, signed)

    low_edge, high_edge = contrast.region
    if lower == upper:  # exact
        return f"is {_exact(value)}"
    if not claim.comparative:
        if math.isinf(lower) and math.isinf(upper):
            same = isinstance(contrast.estimate, IdenticalEstimate)
            return f"{shown(value, True)} with every seed" if same else f"{shown(value, True)}, without limits"
        if low_edge == -math.inf and contrast.outcome != "refuted":
            return f"at most {shown(upper, True)}" if math.isfinite(upper) else f"{shown(value, True)}, without a limit"
        if low_edge == -math.inf:
            return f"at least {shown(lower, True)}"
        if high_edge == math.inf and contrast.outcome != "refuted":
            return (
                f"at least {shown(lower, True)}" if math.isfinite(lower) else f"{shown(value, True)}, without a limit"
            )
        if high_edge == math.inf:
            return f"at most {shown(upper, True)}"
        return f"between {shown(lower, True)} and {shown(upper, True)}"
    least, most = (lower, upper) if low_edge != -math.inf else (-upper, -lower)
    if contrast.outcome == "refuted" and most <= 0 and (not claim.opposite or _is_opposite(contrast)):
        return f"the opposite by at least {shown(-most)}"
    if contrast.outcome == "refuted":
        return f"{claim.comparative} by at most {shown(most)}"
    if math.isinf(least):
        towards = value if low_edge != -math.inf else -value
        word = claim.opposite if towards < 0 and claim.opposite else claim.comparative
        return f"{word} by {shown(abs(towards))}, without a limit"
    if least < 0 and claim.opposite:  # it may be the opposite
        end = f" and {shown(most)} {claim.comparative}" if math.isfinite(most) else ""
        return f"{'between' if end else 'at most'} {shown(-least)} {claim.opposite}{end}"
    return f"{claim.comparative} by at least {shown(least)}"


def _side(value: float, edge: float) -> int:
    return (value > edge) - (value < edge)


def refuted_text(verdict: Verdict) -> str:
    """The meaning of a refuted claim about two arms: `not better by 0.01`, or the opposite; empty for others."""
    claim = verdict.claim
    if not claim.opposite or len(verdict.contrasts) != 1 or verdict.outcome != "refuted":
        return ""
    (contrast,) = verdict.contrasts
    if _is_opposite(contrast):
        return f"The opposite: {claim.arm} is {claim.opposite} than {contrast.than}."
    by = f" by {claim.size}" if claim.margin else ""
    return f"{claim.arm} is not {claim.comparative} than {contrast.than}{by}."


def _is_opposite(contrast: Contrast) -> bool:
    """Whether a difference is surely on the other side of 0 than a claim with one edge says.

    At an edge of 0 both verdicts share the level. At another one each has all of it, so that without any difference
    “better” and “worse” might both be said, each wrongly: “worse” then has what a false “better” leaves, half at most.
    """
    above = math.isinf(contrast.region[1])  # the claim holds above an edge
    edge, level = (contrast.region[0], contrast.errors[0]) if above else (contrast.region[1], contrast.errors[1])
    if edge == 0:
        return contrast.upper < 0 if above else contrast.lower > 0
    estimate = contrast.estimate
    reach = estimate.value - estimate.lower(level) if above else estimate.upper(level) - estimate.value
    wrongly = 0.0  # the chance that the claim is supported without any difference; none where trials were lost
    if math.isfinite(reach):
        away = reach + abs(edge)
        wrongly = estimate.p_above(estimate.value - away) if above else estimate.p_below(estimate.value + away)
    p = estimate.p_below(0.0) if above else estimate.p_above(0.0)
    return is_within(p, min(level / 2, level - wrongly))


def verdict_text(verdict: Verdict) -> str:
    """The reason for a verdict, and what would change it."""
    if verdict.claim.withdrawn:
        return f"Withdrawn: {verdict.claim.withdrawn}."
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
    return f"The data do not decide{where}: {_needs_text(verdict)}."


def _needs_text(verdict: Verdict) -> str:
    """A sentence on what would decide an undecided claim."""
    undecided = [c for c in verdict.contrasts if c.outcome == "undecided"]
    if same := [c for c in undecided if isinstance(c.estimate, SameModelEstimate)]:
        who = f"{same[0].arm} and {same[0].than}" if same[0].than else f"arms of {same[0].arm}"
        return f"{who} trained the same model, so their difference is no evidence"
    if verdict.pairs < 2 and undecided:
        few = min(undecided, key=lambda contrast: contrast.estimate.n)
        of = f"paired seeds of {few.arm} and {few.than}" if few.than else f"seeds with {few.arm}"
        return f"there {'is' if few.estimate.n == 1 else 'are'} {few.estimate.n} {of}, and at least 2 are needed"
    if verdict.needed is not None:
        return seeds_text(verdict.needed)
    if any(isinstance(contrast.estimate, AroundEstimate) and any(contrast.estimate.open) for contrast in undecided):
        lost = "trials that were lost, or never came to the target"
        return f"a mean cannot speak for {lost}; claim `diverges` or `reaches` instead"
    if any(isinstance(c.estimate, IdenticalEstimate) and math.isinf(c.estimate.most) for c in undecided):
        return "equal seeds give no interval; say in `ranges` what the metric can be, and more of them can decide"
    return "no number of seeds of this kind would decide"


def seeds_text(needed: SeedRange) -> str:
    """A sentence on the number of seeds that would decide a claim."""
    low, high = needed.low, needed.high
    if low is None:
        return "more than 1000 seeds would be needed"
    if low == high:
        return f"roughly {low} seeds would decide"
    return f"{low} or many more seeds would decide" if high is None else f"roughly {low} to {high} seeds would decide"
