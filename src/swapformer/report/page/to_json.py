"""Reports as plain data for `--json`, in which nan and infinity become None."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from swapformer.report.page import wording
from swapformer.report.statistics.arm_summary import ArmRow
from swapformer.report.statistics.verdicts import Contrast, Verdict
from swapformer.report.tuning import Tuned
from swapformer.results.arms import ArmDifference


def verdict_dict(verdict: Verdict) -> dict[str, Any]:
    """A verdict with its differences."""
    return {
        "text": verdict.claim.text,
        "claim": verdict.claim.assertion,
        "kind": verdict.claim.kind,
        "outcome": verdict.outcome,
        "why": wording.verdict_text(verdict),
        "error": verdict.level,
        "p": verdict.p,
        "p_holm": verdict.p_adjusted,
        "pairs": verdict.pairs,
        "seeds_needed": [verdict.needed.low, verdict.needed.high] if verdict.needed else None,
        "chances": [finite(chance) for chance in verdict.needed.chances] if verdict.needed else None,
        "differences": [_contrast_dict(contrast) for contrast in verdict.contrasts],
        "notes": list(verdict.notes),
        "qualifiers": list(verdict.qualifiers),
        "look": verdict.look,
    }


def _contrast_dict(contrast: Contrast) -> dict[str, Any]:
    return {
        "arm": contrast.arm,
        "than": contrast.than,
        "difference": finite(contrast.estimate.value),
        "lower": finite(contrast.lower),
        "upper": finite(contrast.upper),
        "errors": list(contrast.errors),
        "paired": contrast.estimate.paired,
        "claimed_above": finite(contrast.region[0]),
        "claimed_below": finite(contrast.region[1]),
        "pairs": contrast.estimate.n,
        "outcome": contrast.outcome,
    }


def row_dict(row: ArmRow, metrics: Sequence[str]) -> dict[str, Any]:
    """A row of the report's table."""
    return {
        "arm": row.arm,
        "trials": dict(row.counts),
        "parameters": finite(row.parameters),
        "seconds": finite(row.seconds),
        "metrics": {
            name: {
                "mean": finite(summary.mean),
                "lower": finite(summary.lower),
                "upper": finite(summary.upper),
                "n": summary.n,
                "difference": finite(summary.comparison.difference) if summary.comparison else None,
            }
            for name, summary in ((metric, row.summaries[metric]) for metric in metrics)
        },
    }


def tuned_dict(tuned: Tuned) -> dict[str, Any]:
    """The tuning of one arm in one condition."""
    return {
        "arm": tuned.arm,
        "condition": tuned.condition,
        "tried": [
            {
                "values": dict(each.tried.values),
                "share": each.tried.share,
                "mean": finite(each.mean),
                "results": list(each.values),
                "others": dict(each.others),
            }
            for each in tuned.outcomes
        ],
        "chosen": dict(tuned.chosen.values) if tuned.chosen else None,
        "edges": list(tuned.chosen.edges) if tuned.chosen else [],
        "inside": bool(tuned.chosen and not tuned.chosen.edges and not tuned.chosen.diverged),
        "grown": tuned.chosen.grown if tuned.chosen else 0,
        "diverged": tuned.chosen.diverged if tuned.chosen else False,
    }


def fairness_dict(fairness: ArmDifference) -> dict[str, Any]:
    """The difference of one arm in one condition to the baseline."""
    plain = asdict(fairness) | {"flops": finite(fairness.flops)}
    return plain | {"mismatch": fairness.match.mismatch if fairness.match else None}


def finite(value: float) -> float | None:
    """The number, or None for nan and infinity, which JSON cannot hold."""
    return value if math.isfinite(value) else None
