"""When claims were stated: which trials of their arms had ended by then.

A claim that is written after its results were seen may be the best of many, and no arithmetic mends that. Its verdict
says so, unless the seeds that ended later decide alike by themselves: those are as good as a study of their own.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from swapformer.errors import UsageError
from swapformer.report.records import Records
from swapformer.report.statistics.claim_grammar import claims_of
from swapformer.report.statistics.claim_identity import identify
from swapformer.report.statistics.claims import Claim
from swapformer.report.statistics.evidence import Evidence
from swapformer.report.statistics.verdicts import Verdict, judge_family
from swapformer.results.ledger import Ledger, are_same, is_older
from swapformer.results.manifest import Manifest, read_manifest, update_ledger
from swapformer.results.record import FINAL
from swapformer.results.store import Store

AFTERWARDS = "stated after results were seen"


def note_claims(study_dir: Path, store: Store, manifest: Manifest) -> None:
    """Note of each claim that is new in a study with which seeds trials of its arms have ended.

    Not before all settings are known. Of a claim that an older version judged it is not known.
    """
    named = claims_by_identity(manifest) if manifest.settings else {}

    def update(ledger: Ledger) -> Ledger:
        new, ended = {}, _ended(manifest, store, ledger)
        for identity, (claim, condition) in named.items():
            if not any(are_same(identity, known) for known in ledger.stated):
                before = any(_judged_before(look.claims, identity) for each in ledger.series for look in each.looks)
                arms = claim.cells(condition, ())
                new[identity] = None if before else tuple(seeds_with_results(arms, manifest, ended))
        return replace(ledger, stated={**ledger.stated, **new}) if new else ledger

    if named:
        update_ledger(study_dir, update)


def note_seen(study_dir: Path, store: Store) -> None:
    """Note of which claims of a study, as it was until now, results are there that no look has judged.

    Called before the study is written anew, which may leave them out.
    """
    try:
        manifest = read_manifest(study_dir)
    except UsageError:
        return
    judged = [each for series in manifest.ledger.series for look in series.looks for each in look.claims.split()]
    ended = _ended(manifest, store, manifest.ledger)
    seen = {
        identity: tuple(sorted({manifest.settings[at] for at in cells if at in manifest.settings}))
        for identity, (claim, condition) in (claims_by_identity(manifest) if manifest.settings else {}).items()
        if not claim.exact and not any(are_same(identity, each) for each in judged)
        for cells in [claim.cells(condition, ())]
        if list(seeds_with_results(cells, manifest, ended))
    }
    if seen:
        update_ledger(study_dir, lambda ledger: ledger.with_seen(seen))


def stated_later(records: Records) -> Records:
    """The records of a published table, whose ledger then tells of claims that the table does not know.

    They were written when it was there, so that all trials in it had ended. Nothing is known where a table tells of no
    claim at all, as older ones do.
    """
    manifest = records.manifest
    if not manifest.ledger.stated:
        return records
    ended = {
        (str(arm), str(at), int(seed))
        for arm, at, seed, status in records.cells[["arm", "condition", "seed", "status"]].itertuples(index=False)
        if status in FINAL
    }
    stated = dict(manifest.ledger.stated)
    for identity, (claim, condition) in claims_by_identity(manifest, records.directions).items():
        if not any(are_same(identity, known) for known in stated):
            arms = claim.cells(condition, ())
            at_seed = {seed: sum((*cell, seed) in ended for cell in arms) for _, _, seed in ended}
            stated[identity] = tuple(sorted(seed for seed, count in at_seed.items() if count >= min(2, len(arms))))
    return replace(records, manifest=replace(manifest, ledger=replace(manifest.ledger, stated=stated)))


def claims_by_identity(manifest: Manifest, directions: Mapping[str, str] | None = None) -> dict[str, tuple[Claim, str]]:
    """What identifies each claim in each condition that it is limited to."""
    return {
        identify(claim, condition, manifest, directions or {}): (claim, condition)
        for condition in manifest.conditions
        for claim in claims_of(manifest)
        if claim.at is None or condition in claim.at
    }


def _judged_before(claims: str, own: str) -> bool:
    """Whether a look was at a claim, or may have been, whose statement was not recorded."""
    named = claims.split()
    of_all = len(named) == 1 and is_older(named[0])  # older versions named all claims together
    return not named or of_all or any(are_same(own, each) for each in named)


def seeds_with_results(arms: set[tuple[str, str]], manifest: Manifest, ended: Container[str]) -> Iterator[int]:
    """The seeds with which trials of two of these arms have ended, or of the only one: what they compare was known.

    That a baseline has ended, which other studies share, tells nothing of an arm that has not.
    """
    trials: dict[int, list[str]] = {}
    for cell in manifest.cells:
        if (cell.arm, cell.condition) in arms and cell.trial:
            trials.setdefault(cell.seed, []).append(cell.trial)
    for seed, ids in trials.items():
        if sum(trial in ended for trial in ids) >= min(2, len(arms)):
            yield seed


def _ended(manifest: Manifest, store: Store, ledger: Ledger) -> set[str]:
    """The trials that have ended. One that a look judged had, though it may have been deleted since."""
    looked_at = {
        trial for each in ledger.series for look in each.looks for ids in look.trials.values() for trial in ids
    }
    named = {cell.trial for cell in manifest.cells if cell.trial}
    return {trial for trial in named if trial in looked_at or _has_ended(trial, store)}


def _has_ended(trial: str, store: Store) -> bool:
    record = store.peek(trial)
    return record is not None and record.status in FINAL


def seeds_seen(ledger: Ledger, identity: str) -> tuple[int, ...] | None:
    """The seeds with which trials had ended when a claim was first stated; None where that was not recorded."""
    return next((seeds for known, seeds in ledger.stated.items() if are_same(identity, known)), None)


def qualifiers(verdict: Verdict, evidence: Evidence, ledger: Ledger, identity: str, error: float) -> Sequence[str]:
    """What a verdict must say of when its claim was stated: nothing where later seeds decide alike by themselves."""
    seen = seeds_seen(ledger, identity)
    if verdict.outcome == "undecided" or not seen or set(seen).isdisjoint(evidence.seeds):
        return ()
    later = evidence.restrict([seed for seed in evidence.seeds if seed not in seen])
    if (
        len(later.seeds) > 1
        and judge_family([(verdict.claim, later)], min(verdict.level, error))[0].outcome == verdict.outcome
    ):
        return ()
    return (AFTERWARDS,)
