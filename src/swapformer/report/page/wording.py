"""Claims, verdicts and caveats in words; shared by the page, the terminal and `--json`."""

from __future__ import annotations

import math
from collections.abc import Sequence

from swapformer.report import number_format
from swapformer.report.condition_view import View
from swapformer.report.page.caveats import fairness_caveats
from swapformer.report.records import Records
from swapformer.report.statistics.arm_summary import ArmRow
from swapformer.report.statistics.claims import Claim
from swapformer.report.statistics.estimates import IdenticalEstimate, Opened
from swapformer.report.statistics.verdicts import Contrast, Verdict

SYMBOLS = {"supported": "✓", "refuted": "✗", "depends": "±", "undecided": "?"}


def claim_text(claim: Claim) -> str:
    """What exactly was claimed: `val/loss of h1 above that of h8 by more than 0.01`."""
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
    """`h1 − h8 = +0.143 [+0.121, +0.165]`."""
    return f"{contrast.arm} − {contrast.than} = {difference_text(contrast)}"


def difference_text(contrast: Contrast) -> str:
    """The estimated difference with its corrected interval."""
    value = contrast.estimate.value
    if math.isnan(value):
        return "unknown"
    places = number_format.places_for(value, contrast.lower, contrast.upper)
    interval = number_format.interval(contrast.lower, contrast.upper, places, signed=True)
    return f"{number_format.number(value, places, signed=True)} {interval}"


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
    open_ones = [c for c in verdict.contrasts if c.outcome == "undecided"]
    where = f" against {len(open_ones)} of {len(verdict.contrasts)} arms" if several else ""
    return f"The data do not decide{where}: {_what_would(verdict, open_ones)}."


def _what_would(verdict: Verdict, undecided: Sequence[Contrast]) -> str:
    if verdict.pairs < 2:
        few = min(undecided, key=lambda contrast: contrast.estimate.n)
        return f"there are {few.estimate.n} paired seeds of {few.arm} and {few.than}, and at least 2 are needed"
    if verdict.needed is not None:
        return number_format.seeds_text(verdict.needed)
    if any(isinstance(contrast.estimate, Opened) for contrast in undecided):
        return "a mean over survivors cannot speak for an arm that diverged; claim `diverges` instead"
    return "no number of seeds of this kind would"


def caveats(records: Records, views: Sequence[View]) -> list[str]:
    """What a reader must know before believing the numbers."""
    found = []
    rows = [row for view in views for row in view.rows]
    verdicts = [verdict for view in views for verdict in view.verdicts]
    unfinished = records.cells["status"].value_counts().drop("finished", errors="ignore")
    if len(unfinished):
        counts = ", ".join(f"{n} {status}" for status, n in unfinished.items())
        lost = int(unfinished.sum())
        found.append(f"{lost} of {len(records.cells)} trials have no result ({counts}); none is averaged.")
    flattered = [
        number_format.placed(row.arm, view.condition)
        for view in views
        for row in view.rows
        if row.counts.get("diverged") and row.counts.get("finished")
    ]
    if flattered:
        found.append(
            f"Means of {', '.join(flattered)} are over surviving trials and flatter; "
            "their intervals are open on the flattering side."
        )
    found += _unmeasured(views)
    found += fairness_caveats(records)
    found += _environments(records)
    found += _commits(records)
    if any(isinstance(c.estimate, IdenticalEstimate) for verdict in verdicts for c in verdict.contrasts):
        found.append(
            "Some differences are the same number with every seed, where a t interval would have no width. Of values "
            "in [0, 1] the interval allows for rare others that these seeds have not shown; of all else the sign test "
            "decided."
        )
    found += _evaluation(rows)
    pairs = [verdict.pairs for verdict in verdicts if verdict.contrasts]
    pairs += [s.comparison.pairs for row in rows for s in row.summaries.values() if s.comparison is not None]
    if min(pairs, default=5) < 5:
        found.append("Intervals from fewer than 5 seeds lean heavily on the assumption of normal differences.")
    scale = f" {records.manifest.scale}" if records.manifest.scale else ""
    found.append(
        f"Intervals cover the randomness of seeds, for this task, size and budget{scale and f' (scale{scale})'}; the "
        "evaluation set is fixed, and its own standard error stands beside."
    )
    return found


def _unmeasured(views: Sequence[View]) -> list[str]:
    """Where trials finished without a finite value of a metric that others have."""
    found = []
    for view in views:
        where = f" with {view.condition}" if view.condition else ""
        seen = view.scene.evidence
        for arm, metric in ((row.arm, metric) for row in view.rows for metric in row.summaries):
            if lost := int(seen.unmeasured(arm, metric).sum()):
                found.append(
                    f"{arm}{where} has no finite {metric} in {lost} of its {int(seen.finished[arm].sum())} finished "
                    "trials; none is averaged, and its intervals are open on the flattering side."
                )
    return found


def _environments(records: Records) -> list[str]:
    classes = sorted({where for where in records.cells["environment"] if where})
    if len(classes) < 2:
        return []
    return [
        f"Trials ran in {len(classes)} environment classes ({'; '.join(classes)}). "
        "Differences are paired only within one class; seeds that lie apart are left out of them."
    ]


def _commits(records: Records) -> list[str]:
    commits = sorted({commit for commit in records.cells["commit"] if commit})
    found = []
    if len(commits) > 1:
        found.append(f"Trials come from {len(commits)} commits: {', '.join(commit[:10] for commit in commits)}.")
    if records.cells["dirty"].any():
        found.append("Some trials ran with uncommitted changes in the working tree.")
    return found


def _evaluation(rows: Sequence[ArmRow]) -> list[str]:
    coarse = sorted({
        summary.metric
        for row in rows
        for summary in row.summaries.values()
        if summary.evaluation_error > 2 * summary.seed_error
    })  # fmt: skip
    if not coarse:
        return []
    return [
        f"In {', '.join(coarse)} the evaluation set's standard error is over twice that of the seeds for some arm: the "
        "differences hold for this evaluation set, and a larger one would say more than further seeds."
    ]
