"""Verdicts on all claims of a study in all conditions, at once or in sequential looks.

A sequential study is judged at `looks` numbers of seeds, at α over their number each, so that all looks together err
with probability α at most, whatever the test (Bonferroni). A decided claim keeps its verdict, unless an arm that it
favours loses trials with the seeds of later looks: then it is undecided again. The claims that are still
undecided share a look's error by Holm's procedure: as long as no wrong verdict has been given, every claim on which one
could be given is among them, or was rightly decided the other way, and has its seeds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from swapformer.report.records import Records, read
from swapformer.report.statistics.claims import Claim, parse
from swapformer.report.statistics.evidence import gather
from swapformer.report.statistics.verdicts import ALPHA, Verdict, judge_family, reconsider

_OPEN = ("missing", "running", "interrupted")


def judge_all(claims: Sequence[Claim], records: Records, alpha: float = ALPHA) -> dict[str, list[Verdict]]:
    """The verdicts on all claims in each condition of the grid; claims × conditions are one family.

    A look after the first is judged when all of its trials have ended.
    """
    manifest = records.manifest
    evidence = {condition: gather(records.at(condition)) for condition in manifest.conditions}
    units = [(condition, index) for condition in evidence for index in range(len(claims))]
    looks: Sequence[int | None] = manifest.looks or (None,)
    found: dict[tuple[str, int], Verdict] = {}
    for turn, seeds in enumerate(looks):
        pending = [unit for unit in units if unit not in found or found[unit].outcome == "undecided"]
        if not pending or (turn and not _ended(records, looks[turn - 1], seeds)):
            break
        seen = evidence if seeds is None else {c: each.restrict(manifest.seeds[:seeds]) for c, each in evidence.items()}
        verdicts = judge_family([(claims[index], seen[condition]) for condition, index in pending], alpha / len(looks))
        for unit, verdict in zip(pending, verdicts, strict=True):
            found[unit] = replace(verdict, look=seeds, p_adjusted=min(1.0, verdict.p_adjusted * len(looks)))
    return {
        condition: [reconsider(found[condition, index], seen) for index in range(len(claims))]
        for condition, seen in evidence.items()
    }


def undecided_arms(study_dir: Path, runs_dir: Path) -> set[tuple[str, str]]:
    """The arms in claims that more seeds could decide, each with its condition."""
    records = read(study_dir, runs_dir)
    claims = parse(records.manifest.claims, tuple(records.manifest.arms), records.manifest.metrics)
    return {
        (arm, condition)
        for condition, verdicts in judge_all(claims, records).items()
        for verdict in verdicts
        if _decidable(verdict)
        for arm in (verdict.claim.arm, *(contrast.than for contrast in verdict.contrasts))
    }


def trials_saved(records: Records, verdicts: Sequence[Verdict]) -> int:
    """How many trials a sequential study spared by stopping early; 0 as long as it goes on."""
    looks = records.manifest.looks
    if not looks or any(_decidable(verdict) and verdict.look != looks[-1] for verdict in verdicts):
        return 0
    if records.cells["status"].isin(_OPEN).any():
        return 0
    arms = sum(len(records.manifest.at(condition).possible) for condition in records.manifest.conditions)
    return looks[-1] * arms - len(records.cells)


def _decidable(verdict: Verdict) -> bool:
    """Whether the claim is undecided and more seeds could decide it; not where some arm has no result at all."""
    return verdict.outcome == "undecided" and verdict.pairs > 0 and (verdict.needed is not None or verdict.pairs == 1)


def _ended(records: Records, before: int | None, seeds: int | None) -> bool:
    """Whether all trials that a look adds exist and have ended."""
    added = records.cells[records.cells["seed"].isin(records.manifest.seeds[before:seeds])]
    return bool(len(added)) and not added["status"].isin(_OPEN).any()
