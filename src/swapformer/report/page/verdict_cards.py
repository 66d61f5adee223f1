"""Verdict cards of the page: each claim with its differences on number lines, all over one scale."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from swapformer.report import number_format
from swapformer.report.figures.condition_view import View
from swapformer.report.page import wording
from swapformer.report.statistics.arm_summary import Comparison, compare
from swapformer.report.statistics.evidence import Evidence
from swapformer.report.statistics.grid import GridVerdict
from swapformer.report.statistics.verdicts import Contrast, Verdict


@dataclass(frozen=True)
class ContrastLine:
    """A difference on a number line; positions are in percent of the track."""

    contrast: Contrast
    text: str
    beside: Comparison | None
    region: tuple[float, float]
    bar: tuple[float, float] | None
    point: float | None
    open_left: bool
    open_right: bool


@dataclass(frozen=True)
class ConditionGroup:
    """The verdict on a claim in one condition, with its number lines."""

    condition: str
    verdict: Verdict
    why: str
    lines: tuple[ContrastLine, ...]


@dataclass(frozen=True)
class VerdictCard:
    """A claim with its verdicts, and the ticks of their common scale as (position in percent, label)."""

    claim: GridVerdict
    claimed: str
    groups: tuple[ConditionGroup, ...]
    ticks: tuple[tuple[float, str], ...]
    zero: float


def verdict_card(claim: GridVerdict, views: Sequence[View]) -> VerdictCard:
    """The card of a claim; its scale holds zero, the edges of the claim and every finite end."""
    contrasts = [contrast for verdict in claim.verdicts.values() for contrast in verdict.contrasts]
    finite = [x for c in contrasts for x in (c.estimate.value, c.lower, c.upper, *c.region) if math.isfinite(x)]
    low, high = min([0.0, *finite]), max([0.0, *finite])
    pad = 0.08 * ((high - low) or 1.0)
    low, high = low - pad, high + pad

    def position(x: float) -> float:
        return round(min(max(100 * (x - low) / (high - low), 0.0), 100.0), 2)

    edges = dict.fromkeys(edge for c in contrasts for edge in c.region if math.isfinite(edge))
    groups = []
    for view in views:
        verdict = claim.verdicts[view.condition]
        seen = view.data.evidence
        lines = tuple(_line(contrast, verdict.claim.metric, seen, position) for contrast in verdict.contrasts)
        groups.append(ConditionGroup(view.condition, verdict, wording.verdict_text(verdict), lines))
    return VerdictCard(claim, wording.claim_text(claim.claim), tuple(groups), _ticks(edges, position), position(0.0))


def _line(
    contrast: Contrast, metric: str | None, evidence: Evidence, position: Callable[[float], float]
) -> ContrastLine:
    return ContrastLine(
        contrast, wording.difference_text(contrast),
        compare(contrast.arm, contrast.than, metric, evidence) if metric else None,
        _stretch(contrast.region, position) or (0.0, 0.0),
        _stretch((contrast.lower, contrast.upper), position),
        None if math.isnan(contrast.estimate.value) else position(contrast.estimate.value),
        math.isinf(contrast.lower), math.isinf(contrast.upper),
    )  # fmt: skip


def _stretch(ends: tuple[float, float], position: Callable[[float], float]) -> tuple[float, float] | None:
    """Both ends on the track; None where neither is known."""
    return (position(ends[0]), position(ends[1])) if any(map(math.isfinite, ends)) else None


def _ticks(edges: Mapping[float, None], position: Callable[[float], float]) -> tuple[tuple[float, str], ...]:
    """Labels for the edges of the claim and for zero, those too close to an earlier one left out."""
    kept: list[tuple[float, str]] = []
    for value in [*edges, 0.0]:
        at = position(value)
        if all(abs(at - other) >= 9 for other, _ in kept):
            kept.append((at, number_format.compact(value + 0.0)))  # an edge may be -0.0
    return tuple(kept)
