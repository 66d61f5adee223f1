"""Verdicts on all claims of a study in all conditions, at one look or at several.

A look is a judgement of the study at the seeds with which every trial has ended, at a part of the error α = 5 %:

    declared by `looks`               4 % / the number of looks
    all seeds that the study states   what is left of 4 %: all of it where nothing was looked at before
    fewer seeds                       half of what is left of 4 %
    later: more seeds, other claims   .5 %, then .25 % …

so that all looks together err with probability Σ error at most (Bonferroni), which is below α and is printed. Looks are
counted by what was trained, not by what is claimed of it: a claim that is added, or changed, about judged trials makes
the next look, and is judged only by it. A decided claim keeps its verdict, unless an arm that it favours loses trials
with the seeds of later looks: then it is undecided again. The claims that are still undecided share a look's error by
Holm's procedure: as long as no wrong verdict has been given, every claim on which one could be given is among them, or
was rightly decided the other way, and has its seeds. One that was judged at a look and has been taken out since still
counts there, as undecided. The ledger in the study's manifest holds the looks that were taken; trials
remember them too (`judged.json`), for a study whose folder is gone. A report from the same seeds and claims is no look.
"""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import takewhile
from pathlib import Path
from typing import Any

from swapformer.errors import UsageError
from swapformer.report.records import Records, read
from swapformer.report.statistics.claim_grammar import claims_of
from swapformer.report.statistics.claims import Claim
from swapformer.report.statistics.evidence import gather, join
from swapformer.report.statistics.verdicts import ALPHA, FIRST, Verdict, judge_family, reconsider
from swapformer.results.files import READ_ONLY, write_atomic
from swapformer.results.ledger import Ledger, Look, Series, digest, looks_in_rows
from swapformer.results.manifest import Manifest, read_manifest, update_ledger
from swapformer.results.store import Store

_OPEN = ("missing", "running", "interrupted")


@dataclass(frozen=True)
class LookPath:
    """The looks that a study was judged at, those of before first; `series` are those of before.

    `claims`: a digest of each claim of now, in their order. A look judged those that it names, or all where it names
    their `family` as older versions did; other looks took their error, and judged nothing of these.
    """

    looks: tuple[Look, ...]
    series: Series | None = None
    claims: tuple[str, ...] = ()
    family: str = ""

    @property
    def added(self) -> tuple[Look, ...]:
        """The looks that the ledger does not have yet; a single seed is no look."""
        return self.looks[len(self.series.looks) if self.series else 0 :] if max(self.seeds, default=0) > 1 else ()

    @property
    def taken(self) -> tuple[Look, ...]:
        """The looks that the ledger has."""
        return self.series.looks if self.series else ()

    @property
    def seeds(self) -> tuple[int, ...]:
        """The number of seeds at each look."""
        counts = [len(look.trials) for look in self.looks]
        return tuple(sum(counts[: k + 1]) for k in range(len(counts)))

    def judged(self, look: Look) -> frozenset[int]:
        """The claims of now, by their number, that a look was at."""
        named = set(self.claims) if look.claims in ("", self.family) else set(look.claims.split())
        return frozenset(number for number, claim in enumerate(self.claims) if claim in named)

    def gone(self, look: Look) -> int:
        """The number of claims that a look was at and that are no longer made."""
        if look.claims in ("", self.family):
            return 0
        return sum(claim not in self.claims for claim in look.claims.split())

    @property
    def whole(self) -> bool:
        """Whether each claim of now was judged at a look since the last one that added seeds."""
        last = max((at for at, look in enumerate(self.looks) if look.trials), default=0)
        return {number for look in self.looks[last:] for number in self.judged(look)} == set(range(len(self.claims)))

    @property
    def error(self) -> float:
        """The probability that the looks together give any wrong verdict, at most."""
        return math.fsum(look.error for look in self.looks)


@dataclass(frozen=True)
class _Subject:
    """What a series of looks is about: the trials of the arms in claims, by seed, and the ids of their settings."""

    arms: frozenset[str]
    trials: Mapping[int, tuple[str, ...]]
    settings: frozenset[str]

    @classmethod
    def of(cls, manifest: Manifest, claims: Sequence[Claim]) -> _Subject:
        arms = frozenset(arm for claim in claims for arm in claim.arms)
        trials: dict[int, list[str]] = {}
        for cell in manifest.cells:
            if cell.arm in arms and cell.trial:
                trials.setdefault(cell.seed, []).append(cell.trial)
        ids = {seed: tuple(sorted(found)) for seed, found in trials.items()}
        settings = frozenset(found for (arm, _), found in manifest.settings.items() if arm in arms)
        return cls(arms, ids, settings)

    def series(self, ledger: Ledger, environments: Collection[str] = ()) -> Series | None:
        """The looks of a ledger at it; the newest where there are several."""
        return next((s for s in reversed(ledger.series) if s.is_about(self.trials, environments, self.settings)), None)


def next_error(spent: Sequence[float], all_stated: bool, declared: int = 0, alpha: float = ALPHA) -> float:
    """The error of the next look after looks that took `spent`, where so many looks were `declared`, if any."""
    first = FIRST * alpha
    left, beyond = first, 0
    for error in spent:
        beyond += left <= 1e-9
        left -= error
    if left <= 1e-9:
        return round((alpha - first) / 2 ** (beyond + 1), 12)
    return round(min(first / declared if declared else left if all_stated else left / 2, left), 12)


def look_path(claims: Sequence[Claim], records: Records, alpha: float = ALPHA) -> LookPath:
    """The looks of the ledger and those that judging these records now adds."""
    manifest = records.manifest
    subject = _Subject.of(manifest, claims)
    cells = records.cells[records.cells["arm"].isin(subject.arms)]
    environments = tuple(sorted({where for where in cells["environment"] if where}))
    awaited = cells["status"].isin(() if records.whole else _OPEN)
    open_seeds, here = set(cells.loc[awaited, "seed"]), set(cells["seed"])
    series = subject.series(manifest.ledger, environments)
    each = tuple(map(claim_digest, claims))
    of = " ".join(sorted(each))

    def path() -> LookPath:
        return LookPath(tuple(looks), series, each, family_digest(claims))

    looks = list(takewhile(lambda look: look.trials.keys() <= here, series.looks)) if series else []
    if series and len(looks) < len(series.looks):
        return path()  # a sequential study that is run again has not come to the others yet
    ended = [seed for seed in manifest.seeds if seed in here and seed not in open_seeds]

    def take(seeds: Sequence[int]) -> None:
        known = [seed for look in looks for seed in look.trials]
        new = [seed for seed in seeds if seed not in known]
        all_stated = set(manifest.seeds) <= {*known, *new}
        error = next_error([look.error for look in looks], all_stated, len(manifest.looks), alpha)
        looks.append(Look(error, {seed: subject.trials.get(seed, ()) for seed in new}, environments, of))

    for seeds in _steps(manifest, ended):
        if not set(seeds) <= {seed for look in looks for seed in look.trials}:
            take(seeds)
    if looks and not path().whole:
        take(())
    return path()


def _steps(manifest: Manifest, ended: Sequence[int]) -> Iterator[Sequence[int]]:
    """The seeds of each look that can be taken now."""
    if not manifest.looks:
        yield ended
        return
    for seeds in manifest.looks:
        if not set(manifest.seeds[:seeds]) <= set(ended):
            return
        yield manifest.seeds[:seeds]


def _said(claim: Claim) -> str:
    """A claim without its wording, order or spelling."""
    return json.dumps({**asdict(claim), "text": "", "withdrawn": "", "than": sorted(claim.than)}, sort_keys=True)


def claim_digest(claim: Claim) -> str:
    """A digest of a claim that does not depend on its wording, order or spelling."""
    return digest(_said(claim))


def family_digest(claims: Sequence[Claim]) -> str:
    """A digest of several claims together, by which older versions named what a look was at."""
    return digest(sorted(map(_said, claims)))


def record_looks(study_dir: Path, runs_dir: Path, claims: Sequence[Claim], records: Records) -> Records:
    """The records with the ledger brought up to date, in the study's manifest too unless the store may only be read.

    A study whose folder has no looks at its trials has those that they remember. Without claims nothing is judged.
    """
    if not claims:
        return records
    store = Store(runs_dir)
    subject = _Subject.of(records.manifest, claims)
    added: Sequence[Look] = ()
    before = 0

    def update(ledger: Ledger) -> Ledger:
        nonlocal added, before
        if subject.series(ledger) is None and (looks := _remembered(store, subject)):
            ledger = ledger.add(looks, None, subject.settings)
        path = look_path(claims, replace(records, manifest=replace(records.manifest, ledger=ledger)))
        added, before = path.added, len(path.taken)
        return ledger.add(added, path.series, subject.settings) if added else ledger

    try:
        ledger = update_ledger(study_dir, update)
        _remember(store, added, before, subject)
    except OSError as error:
        if error.errno not in READ_ONLY:
            raise
        ledger = update(records.manifest.ledger)
    return replace(records, manifest=replace(records.manifest, ledger=ledger))


JUDGED = "judged.json"
"""The looks at which a trial was judged, in its folder."""


def _remember(store: Store, looks: Sequence[Look], before: int, subject: _Subject) -> None:
    """Have trials remember looks, `before` of which were taken: those that a look added, or all where it added none."""
    of = digest(sorted(subject.settings))
    for number, look in enumerate(looks, before):
        mark = {
            "settings": of, "number": number, "error": look.error, "claims": look.claims,
            "environments": list(look.environments),
        }  # fmt: skip
        for ids in (look.trials or subject.trials).values():
            for trial in ids:
                path = store.directory(trial) / JUDGED
                if path.parent.is_dir():
                    write_atomic(path, json.dumps([*_marks(path), {**mark, "added": bool(look.trials)}]) + "\n")


def _marks(path: Path) -> list[dict[str, Any]]:
    """The looks that a trial remembers; none where its file is missing or damaged."""
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return []
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []


def _remembered(store: Store, subject: _Subject) -> tuple[Look, ...]:
    """The looks that trials remember, the first first."""
    of, found = digest(sorted(subject.settings)), dict[int, Look]()
    for seed, ids in subject.trials.items():
        for mark in (each for trial in ids for each in _marks(store.directory(trial) / JUDGED)):
            try:
                if mark["settings"] == of:
                    number, environments = int(mark["number"]), tuple(map(str, mark["environments"]))
                    look = found.setdefault(number, Look(float(mark["error"]), {}, environments, str(mark["claims"])))
                    seeds = {**look.trials, seed: tuple(ids)} if mark["added"] else look.trials
                    found[number] = replace(look, trials=seeds)
            except (KeyError, TypeError, ValueError):
                continue
    return tuple(found[number] for number in sorted(found))


def adopt_looks(study_dir: Path, runs_dir: Path, manifest: Manifest, published: Path) -> None:
    """Begin the ledger of a study that has no looks yet with those in its published `results.csv`.

    Only where that is about some of its trials, and these remember none themselves.
    """
    subject = _Subject.of(manifest, claims_of(manifest))
    try:
        with published.open(encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file))
        known = {trial for ids in subject.trials.values() for trial in ids}
        looks = looks_in_rows(rows)[0] if known.intersection(row["trial"] for row in rows) else ()
    except (OSError, ValueError, KeyError, TypeError, csv.Error):
        return  # a file that nobody can read holds no looks
    looks = tuple(replace(look, trials={seed: subject.trials.get(seed, ()) for seed in look.trials}) for look in looks)

    def update(ledger: Ledger) -> Ledger:
        if subject.series(ledger) or not looks or _remembered(Store(runs_dir), subject):
            return ledger
        return ledger.add(looks, None, subject.settings)

    update_ledger(study_dir, update)


def require_seeds(study_dir: Path, manifest: Manifest) -> None:
    """Refuse a study that leaves out seeds with which it was judged before: which seeds count is not chosen by results.

    A study that has no manifest yet, or a damaged one, is not refused, nor is one whose arms still choose settings.
    """
    if not manifest.settings:
        return
    try:
        ledger = read_manifest(study_dir).ledger
    except UsageError:
        return
    claims = claims_of(manifest)
    series = _Subject.of(manifest, claims).series(ledger) if claims else None
    if series and (left_out := [seed for seed in series.seeds if seed not in manifest.seeds]):
        shown = ", ".join(map(str, left_out[:8])) + (" …" if len(left_out) > 8 else "")
        which, too = (f"seed {shown}", "it") if len(left_out) == 1 else (f"the seeds {shown}", "them")
        raise UsageError(
            f"all {len(series.seeds)} seeds that {manifest.name} was judged with must stay, but it leaves out {which}; "
            f"state {too} too"
        )


def judge_all(claims: Sequence[Claim], records: Records, alpha: float = ALPHA) -> dict[str, list[Verdict]]:
    """The verdicts on all claims in each condition of the grid; claims × conditions are one family."""
    manifest = records.manifest
    evidence = {condition: gather(records.at(condition)) for condition in manifest.conditions}
    units = [(at, index) for at in evidence for index, claim in enumerate(claims) if _is_judged(claim, at, manifest)]
    whole = join(evidence)
    path = look_path(claims, records, alpha)
    several = bool(manifest.looks) or len(path.looks) > 1
    later = next_error([look.error for look in path.looks], True, len(manifest.looks), alpha)
    found: dict[tuple[str, int], Verdict] = {}
    seeds: set[int] = set()
    for look in path.looks or (Look(FIRST * alpha, {}),):
        pending = [unit for unit in units if unit not in found or found[unit].outcome == "undecided"]
        if not pending:
            break
        seeds |= look.trials.keys()
        judged, gone = path.judged(look), path.gone(look) * len(evidence)
        pending = [(condition, index) for condition, index in pending if index in judged]
        seen = {condition: each.restrict(seeds) for condition, each in evidence.items()}
        over_all = whole.restrict(seeds)
        family = [(claims[i], over_all if claims[i].spans else seen[condition]) for condition, i in pending]
        verdicts = judge_family(family, look.error, later, gone)
        for unit, verdict in zip(pending, verdicts, strict=True):
            if verdict.claim.withdrawn:
                verdict = replace(verdict, outcome="undecided", needed=None, elsewhere="")
            p_adjusted = min(1.0, verdict.p_adjusted * alpha / look.error)
            found[unit] = replace(verdict, look=len(seeds) if several else None, p_adjusted=p_adjusted)
    return {
        condition: [
            reconsider(verdict, whole if verdict.claim.spans else seen)
            for (at, _), verdict in found.items()
            if at == condition
        ]
        for condition, seen in evidence.items()
    }


def _is_judged(claim: Claim, condition: str, manifest: Manifest) -> bool:
    """Whether a claim is judged in this condition; one that compares conditions is, in the first that it names."""
    if claim.spans:
        named = {term.condition for term in claim.terms}
        return condition == next(each for each in manifest.conditions if each in named)
    return claim.at is None or condition in claim.at


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
    if records.cells["status"].isin(_OPEN).any():
        return 0
    arms = sum(len(records.manifest.at(condition).possible) for condition in records.manifest.conditions)
    return looks[-1] * arms - len(records.cells)


def _decidable(verdict: Verdict) -> bool:
    """Whether the claim is undecided and more seeds could decide it; not where some arm has no result at all."""
    return verdict.outcome == "undecided" and verdict.pairs > 0 and (verdict.needed is not None or verdict.pairs == 1)
