"""Verdicts on all claims of a study in all conditions, at one look or at several (`look_path`)."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path

from swapformer.report import number_format
from swapformer.report.records import Records, read
from swapformer.report.statistics import statements
from swapformer.report.statistics.claim_grammar import claims_of
from swapformer.report.statistics.claims import Claim
from swapformer.report.statistics.evidence import Evidence, gather, join
from swapformer.report.statistics.kept_looks import record_looks
from swapformer.report.statistics.look_path import OPEN, Unit, look_path, next_error
from swapformer.report.statistics.verdicts import ALPHA, FIRST, Verdict, judge_family, reconsider
from swapformer.report.tuning import ends_text
from swapformer.results.arms import arm_name


def judge_all(claims: Sequence[Claim], records: Records, alpha: float = ALPHA) -> dict[str, list[Verdict]]:
    """The verdicts on all claims in each condition of the grid; claims × conditions are one family."""
    manifest = records.manifest
    evidence = {condition: gather(records.at(condition)) for condition in manifest.conditions}
    whole = join(evidence)
    path = look_path(claims, records, alpha)
    declared = len(manifest.looks)
    later = next_error([look.error for look in path.looks], True, declared, alpha, manifest.later_claims)

    def seen(unit: Unit, seeds: Collection[int], absent: Collection[tuple[str, str, int]] = ()) -> Evidence:
        """The evidence that a claim is about, from these seeds, without the cells that had no result."""
        condition, number = unit
        if claims[number].spans:
            return whole.restrict(seeds, {(arm_name(arm, at), seed) for at, arm, seed in absent})
        return evidence[condition].restrict(seeds, {(arm, seed) for at, arm, seed in absent if at == condition})

    found: dict[Unit, Verdict] = {}
    for look, seeds, judged, gone in zip(path.looks, path.seeds, path.judged, path.gone, strict=True):
        pending = [
            unit for unit in path.units if unit in judged and (unit not in found or found[unit].outcome == "undecided")
        ]
        family = [(claims[unit[1]], seen(unit, seeds, look.absent)) for unit in pending]
        for unit, (claim, data), verdict in zip(
            pending, family, judge_family(family, look.error, later, gone), strict=True
        ):
            if claim.withdrawn:
                verdict = replace(verdict, outcome="undecided", needed=None, elsewhere="")
            verdict = replace(verdict, p_adjusted=min(1.0, verdict.p_adjusted * alpha / look.error))
            marks = [
                *verdict.qualifiers,
                *(
                    []
                    if claim.exact
                    else ends_text(manifest, claim.cells(unit[0], [c.than for c in verdict.contrasts if c.than]))
                ),
                *statements.qualifiers(verdict, data, manifest.ledger, path.units[unit], look.error),
            ]
            found[unit] = replace(verdict, look=len(seeds), qualifiers=tuple(marks))
    left = [unit for unit in path.units if unit not in found]
    family = [(claims[unit[1]], seen(unit, path.available[unit])) for unit in left]
    for unit, verdict in zip(left, judge_family(family, FIRST * alpha, later), strict=True):
        if verdict.claim.exact and not verdict.claim.withdrawn:
            data = seen(unit, path.available[unit])
            said = statements.qualifiers(verdict, data, manifest.ledger, path.units[unit], FIRST * alpha)
            found[unit] = replace(verdict, qualifiers=(*verdict.qualifiers, *said))
        else:
            found[unit] = _not_judged(verdict)
    several = bool(declared) or len(path.looks) > 1
    # claims of looks at which some trial had no result, which may have one now
    again = frozenset[Unit]().union(
        *(judged for look, judged in zip(path.looks, path.judged, strict=True) if look.absent)
    )
    result: dict[str, list[Verdict]] = {condition: [] for condition in evidence}
    for unit in path.units:
        all_seeds = seen(unit, path.available[unit])
        verdict = reconsider(found[unit], all_seeds)
        fewer = verdict.look is not None and verdict.look < len(path.available[unit])
        if verdict.look is not None and (fewer or unit in again):
            verdict = replace(verdict, qualifiers=(*verdict.qualifiers, *_with_all_seeds(verdict, all_seeds)))
        if not (several or fewer):
            verdict = replace(verdict, look=None)
        result[unit[0]].append(verdict)
    return result


def _not_judged(verdict: Verdict) -> Verdict:
    """The estimates of a claim that no look has judged yet, without a verdict."""
    return replace(
        verdict,
        outcome="undecided",
        elsewhere="",
        p=1.0,
        p_adjusted=1.0,
        needed=None if verdict.claim.withdrawn else verdict.needed,
    )


def _with_all_seeds(verdict: Verdict, evidence: Evidence) -> list[str]:
    """Whether a verdict of fewer seeds stands with all that there are, for its own line; nothing of an open claim."""
    if verdict.outcome == "undecided" or verdict.claim.exact:
        return []
    (again,) = judge_family([(verdict.claim, evidence)], verdict.level)
    before = {each.than: each.estimate.n for each in verdict.contrasts}
    if all(each.estimate.n <= before.get(each.than, 0) for each in again.contrasts):
        return []  # its arms were trained with no other seeds
    seeds = max(each.estimate.n for each in again.contrasts)
    if again.outcome == verdict.outcome:
        return [f"and all {seeds} seeds agree"]
    if again.outcome != "undecided":
        return [f"but all {seeds} seeds together say the opposite"]
    shown = [number_format.difference_text(each.estimate.value, each.usual) for each in again.contrasts[:1]]
    return [f"but all {seeds} seeds together no longer decide it ({shown[0]})"]


def undecided_arms(study_dir: Path, runs_dir: Path) -> set[tuple[str, str]]:
    """The arms in claims that more seeds could decide, each with its condition."""
    records = read(study_dir, runs_dir)
    claims = claims_of(records.manifest)
    return {
        (arm, condition)
        for where, verdicts in judge_all(claims, record_looks(study_dir, runs_dir, claims, records)).items()
        for verdict in verdicts
        if _decidable(verdict)
        for arm, condition in verdict.claim.cells(where, [c.than for c in verdict.contrasts if c.than])
    }


def trials_saved(records: Records, verdicts: Sequence[Verdict]) -> int:
    """The number of trials that a sequential study saved by stopping early; 0 while it still runs."""
    looks = records.manifest.looks
    if not looks or any(_decidable(verdict) and verdict.look != looks[-1] for verdict in verdicts):
        return 0
    if records.cells["status"].isin(OPEN).any():
        return 0
    arms = sum(len(records.manifest.at(condition).possible) for condition in records.manifest.conditions)
    return looks[-1] * arms - len(records.cells)


def _decidable(verdict: Verdict) -> bool:
    """Whether the claim is undecided and more seeds could decide it; not where some arm has no result at all."""
    return verdict.outcome == "undecided" and verdict.pairs > 0 and (verdict.needed is not None or verdict.pairs == 1)
