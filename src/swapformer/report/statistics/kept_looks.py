"""The looks that a study's manifest, its trials and its published table keep, each brought up to date by the others."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from swapformer.errors import UsageError
from swapformer.report.records import Records
from swapformer.report.statistics.claim_grammar import claims_of
from swapformer.report.statistics.claims import Claim
from swapformer.report.statistics.look_path import JudgedTrials, LookPath, look_path, units_of
from swapformer.report.statistics.remembered_looks import Compared, remember, remembered
from swapformer.report.statistics.statements import claims_by_identity, seeds_with_results
from swapformer.results.files import READ_ONLY
from swapformer.results.ledger import Ledger, Look, looks_in_rows, stated_claims, without_settings
from swapformer.results.manifest import Manifest, read_manifest, update_ledger
from swapformer.results.record import FINAL
from swapformer.results.store import Store


def record_looks(study_dir: Path, runs_dir: Path, claims: Sequence[Claim], records: Records) -> Records:
    """The records with the ledger brought up to date, in the study's manifest too unless the store may only be read.

    Looks that its trials remember of other folders are taken over. Without claims nothing is judged.
    """
    if not claims:
        return records
    store = Store(runs_dir)
    manifest = records.manifest
    subject = JudgedTrials.of(manifest)
    elsewhere = remembered(store, _compared(claims, manifest), _settings_of(claims, manifest))
    path: LookPath | None = None

    def update(ledger: Ledger) -> Ledger:
        nonlocal path
        ledger = _with_remembered(ledger, subject, elsewhere)
        path = look_path(claims, replace(records, manifest=replace(manifest, ledger=ledger)))
        ledger = ledger.add(path.added, path.series, subject.settings) if path.added else ledger
        return ledger.with_seen(path.seen)

    try:
        ledger = update_ledger(study_dir, update)
        assert path is not None, "the update of a ledger finds its looks"
        for look, seeds, judged in list(zip(path.looks, path.seeds, path.judged, strict=True))[path.taken :]:
            cells = {cell for unit in judged for cell in claims[unit[1]].cells(unit[0], ())}
            of = [cell for cell in manifest.cells if (cell.arm, cell.condition) in cells and cell.seed in seeds]
            remember(store, look, [cell.trial for cell in of if cell.trial])
    except OSError as error:
        if error.errno not in READ_ONLY:
            raise
        ledger = update(manifest.ledger)
    return replace(records, manifest=replace(manifest, ledger=ledger))


def _with_remembered(ledger: Ledger, subject: JudgedTrials, elsewhere: Sequence[Look]) -> Ledger:
    """The ledger with those looks of other folders that it does not have."""
    series = subject.series(ledger)
    known = {look.id for look in series.looks} if series else set[str]()
    # older versions did not name their looks, so that those of this very folder would count twice
    missing = [look for look in elsewhere if look.id not in known and not (series and "/" in look.id)]
    return ledger.add(missing, series, subject.settings) if missing else ledger


def _compared(claims: Sequence[Claim], manifest: Manifest) -> list[Compared]:
    """The arms of each claim, each with its trials by seed."""
    trials: dict[tuple[str, str], dict[int, str]] = {}
    for cell in manifest.cells:
        if cell.trial:
            trials.setdefault((cell.arm, cell.condition), {})[cell.seed] = cell.trial
    return [
        [trials[at] for at in sorted(claims[number].cells(condition, ())) if at in trials]
        for condition, number in units_of(claims, manifest)
    ]


def _settings_of(claims: Sequence[Claim], manifest: Manifest) -> frozenset[str]:
    """The ids of what the arms in claims train."""
    arms = {arm for claim in claims for arm in claim.arms}
    return frozenset(found for (arm, _), found in manifest.settings.items() if arm in arms)


def adopt_looks(study_dir: Path, runs_dir: Path, manifest: Manifest, published: Path) -> None:
    """Begin the ledger of a study that has no looks yet with those in its published `results.csv`.

    Only where that is about some of its trials; looks that these remember themselves come from there. Of a table
    without any look the claims are noted whose results it has.
    """
    subject, claims = JudgedTrials.of(manifest), claims_of(manifest)
    try:
        with published.open(encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file))
        known = {trial for ids in subject.trials.values() for trial in ids}
        looks = looks_in_rows(rows)[0] if known.intersection(row["trial"] for row in rows) else ()
        facts = [json.loads(row["note"]) for row in rows if row["metric"] == "claim" and row["status"] == "stated"]
        stated = stated_claims(facts) if looks else {}
        seen = {} if looks or facts else _seen_in(rows, manifest)
    except (OSError, ValueError, KeyError, TypeError, csv.Error):
        return  # a file that nobody can read holds no looks
    looks = tuple(replace(look, trials={seed: subject.trials.get(seed, ()) for seed in look.trials}) for look in looks)

    def update(ledger: Ledger) -> Ledger:
        if subject.series(ledger):
            return ledger
        if not looks:
            return replace(ledger, stated={**seen, **ledger.stated})
        own = remembered(Store(runs_dir), _compared(claims, manifest), _settings_of(claims, manifest))
        known = [(look.error, _as_published(look)) for look in own]
        missing = [look for look in looks if (look.error, _as_published(look)) not in known]
        added = ledger.add(missing, None, subject.settings) if missing else ledger
        return replace(added, stated={**stated, **ledger.stated})

    update_ledger(study_dir, update)


def _seen_in(rows: Sequence[Mapping[str, str]], manifest: Manifest) -> dict[str, tuple[int, ...]]:
    """The claims of now whose results a table has that was published without any: with which seeds.

    With fewer than two seeds nothing could be judged, so that they may have been made before.
    """
    ended = {row["trial"] for row in rows if row["trial"] and row["status"] in FINAL}
    return {
        identity: seeds
        for identity, (claim, condition) in claims_by_identity(manifest).items()
        if not claim.exact and len(seeds := tuple(seeds_with_results(claim.cells(condition, ()), manifest, ended))) > 1
    }


def _as_published(look: Look) -> frozenset[str]:
    """The claims of a look as a table names them."""
    return frozenset(map(without_settings, look.claims.split()))


def require_seeds(study_dir: Path, manifest: Manifest) -> None:
    """Refuse a study that leaves out seeds with which it was judged before: which seeds count is not chosen by results.

    A study that has no manifest yet, or a damaged one, is not refused, nor is one whose arms still choose settings.
    """
    if not manifest.settings or not manifest.claims:
        return
    try:
        ledger = read_manifest(study_dir).ledger
    except UsageError:
        return
    series = JudgedTrials.of(manifest).series(ledger)
    if series and (left_out := [seed for seed in series.seeds if seed not in manifest.seeds]):
        shown = ", ".join(map(str, left_out[:8])) + (" …" if len(left_out) > 8 else "")
        which, too = (f"seed {shown}", "it") if len(left_out) == 1 else (f"the seeds {shown}", "them")
        raise UsageError(
            f"all {len(series.seeds)} seeds that {manifest.name} was judged with must stay, but it leaves out {which}; "
            f"state {too} too"
        )
