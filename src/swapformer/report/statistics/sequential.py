"""Verdicts on all claims of a study in all conditions, at one look or at several.

A look is a judgement of claims at the seeds with which all trials of their arms have ended, at a part of α = 5 %:

    declared by `looks`               4 % / the number of looks
    all seeds that the study states   what is left of 4 %: all of it where nothing was looked at before
    fewer seeds, or claims that wait  half of what is left of 4 %
    later: more seeds, other claims   half of what is left of 5 %: .5 %, then .25 % …

so that all looks together err with probability Σ error at most (Bonferroni), which is below α and is printed. A study
that reserves for later claims has 2 % in place of the 4 %, and its later looks 1.5 %, .75 % ….

One folder, or one table, has one series of looks as long as any trials are the same, whatever arms, conditions and
claims come and go. A claim is judged only at looks that it was stated at: one that is added, defined otherwise, or
about other trials, waits for the next. A decided claim keeps its verdict, unless an arm that it favours loses trials
with the seeds of later looks: then it is undecided again. Undecided claims share a look's error by Holm's procedure;
one that was judged at a look and has been taken out since still counts there, as undecided. A look keeps the data that
it was at: a failed trial that is run again counts from the next look on. The ledger in the study's manifest holds the
looks; trials remember them too (`remembered_looks`). A report from the same seeds and claims is no look.
"""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import takewhile
from pathlib import Path

from swapformer.errors import UsageError
from swapformer.report import number_format
from swapformer.report.records import Records, read
from swapformer.report.statistics import statements
from swapformer.report.statistics.claim_grammar import claims_of
from swapformer.report.statistics.claim_identity import at_look, digest_of_all, identify
from swapformer.report.statistics.claims import Claim
from swapformer.report.statistics.evidence import Evidence, gather, join
from swapformer.report.statistics.judged_values import JudgedValues, cells_of
from swapformer.report.statistics.remembered_looks import Compared, remember, remembered
from swapformer.report.statistics.verdicts import ALPHA, FIRST, RESERVED, Verdict, judge_family, reconsider
from swapformer.report.tuning import ends_text
from swapformer.results.arms import arm_name
from swapformer.results.files import READ_ONLY
from swapformer.results.ledger import (
    CellName,
    Ledger,
    Look,
    Series,
    are_same,
    digest,
    is_older,
    looks_in_rows,
    stated_claims,
    without_settings,
)
from swapformer.results.manifest import Manifest, read_manifest, update_ledger
from swapformer.results.record import DIVERGED, FINISHED
from swapformer.results.store import Store

LEAST = 1e-9
"""The smallest error of a look: of some thirty looks later ones together take next to nothing."""
_OPEN = ("missing", "running", "interrupted")
Unit = tuple[str, int]
"""A condition, and the number of a claim that is judged in it."""


@dataclass(frozen=True)
class LookPath:
    """The looks that a study was judged at, those of before first.

    `taken`: how many of them the ledger has, and `series` these as one. `units`: each claim in each condition, with
    what identifies it. `cells`: the arms that each waits for, with their conditions, and `available`: the seeds with
    which their trials have ended. `values`: the digest of those that a claim has now, with these seeds and without
    these cells.
    """

    looks: tuple[Look, ...]
    taken: int
    series: Series | None
    units: Mapping[Unit, str]
    cells: Mapping[Unit, Collection[tuple[str, str]]]
    available: Mapping[Unit, tuple[int, ...]]
    values: Callable[[Unit, Collection[int], Collection[CellName]], str]
    of_all: str = ""

    @property
    def added(self) -> tuple[Look, ...]:
        """The looks that the ledger does not have yet."""
        return self.looks[self.taken :]

    @property
    def before(self) -> tuple[Look, ...]:
        """The looks that the ledger has."""
        return self.looks[: self.taken]

    @cached_property
    def seeds(self) -> tuple[frozenset[int], ...]:
        """The seeds that each look judged with."""
        found, known = list[frozenset[int]](), set[int]()
        for look in self.looks:
            known |= look.trials.keys()
            found.append(frozenset(known if look.seeds is None else look.seeds))
        return tuple(found)

    @cached_property
    def _named(self) -> tuple[Mapping[Unit, str], ...]:
        """Of each look, what would identify the claims of now if they were judged there, with their values of now."""
        return tuple(
            {unit: at_look(own, self.values(unit, seeds, look.absent)) for unit, own in self.units.items()}
            for look, seeds in zip(self.looks, self.seeds, strict=True)
        )

    @cached_property
    def judged(self) -> tuple[frozenset[Unit], ...]:
        """The claims of now that each look was at, each in its condition and with the values that it has now."""
        return tuple(
            frozenset(
                unit
                for unit, own in named.items()
                if look.claims in ("", self.of_all) or any(are_same(own, each) for each in look.claims.split())
            )
            for look, named in zip(self.looks, self._named, strict=True)
        )

    @cached_property
    def gone(self) -> tuple[int, ...]:
        """The claims of each look that are no longer made, or have other values now; each counts in each condition."""
        conditions = len({condition for condition, _ in self.units})
        return tuple(
            sum(
                conditions if is_older(each) else 1
                for each in look.claims.split()
                if look.claims != self.of_all and not any(are_same(own, each) for own in named.values())
            )
            for look, named in zip(self.looks, self._named, strict=True)
        )

    @property
    def published(self) -> tuple[Look, ...]:
        """The looks that the ledger has, as a table holds them, which does not know what arms train.

        A claim whose arms have trained something else since is not the same there either.
        """
        return tuple(
            replace(look, claims=" ".join(dict.fromkeys(map(self._published_name, look.claims.split()))))
            for look in self.before
        )

    def published_statements(self, ledger: Ledger) -> dict[str, tuple[int, ...] | None]:
        """When claims were stated, as a table holds it: `Ledger.stated` under the names that its looks have."""
        found: dict[str, tuple[int, ...] | None] = {}
        for identity, seen in ledger.stated.items():
            found.setdefault(self._published_name(identity), seen)
        return found

    def _published_name(self, identity: str) -> str:
        current, short = list(self.units.values()), without_settings(identity)
        other = any(are_same(short, own) for own in current) and not any(are_same(identity, own) for own in current)
        return f"gone{digest(identity)}" if other else short

    @property
    def error(self) -> float:
        """The probability that the looks together give any wrong verdict, at most."""
        return math.fsum(look.error for look in self.looks)


@dataclass(frozen=True)
class _Subject:
    """What looks are about: the trials of all arms, by seed, and the ids of their settings."""

    trials: Mapping[int, tuple[str, ...]]
    settings: frozenset[str]

    @classmethod
    def of(cls, manifest: Manifest) -> _Subject:
        trials: dict[int, list[str]] = {}
        for cell in manifest.cells:
            if cell.trial:
                trials.setdefault(cell.seed, []).append(cell.trial)
        ids = {seed: tuple(sorted(found)) for seed, found in trials.items()}
        return cls(ids, frozenset(manifest.settings.values()))

    def series(self, ledger: Ledger, environments: Collection[str] = ()) -> Series | None:
        """The looks of a ledger at it."""
        return ledger.about(self.trials, environments, self.settings)


def next_error(
    spent: Sequence[float], all_stated: bool, declared: int = 0, alpha: float = ALPHA, reserved: bool = False
) -> float:
    """The error of the next look after looks that took `spent`, where so many looks were `declared`, if any.

    `all_stated`: it is at all seeds and claims that the study states. `reserved`: part of the error waits for claims
    that are stated later.
    """
    first = FIRST * alpha * (RESERVED if reserved else 1)
    left, remaining = first - math.fsum(spent), alpha - math.fsum(spent)
    if left > 1e-9:
        return round(min(first / declared if declared else left if all_stated else left / 2, left), 12)
    if remaining > 2 * LEAST:
        return round(remaining / 2, 12)
    return max(round(min((alpha - first) / 2, min(spent) / 2), 12), LEAST)  # of looks that older versions counted apart


def units_of(claims: Sequence[Claim], manifest: Manifest) -> list[Unit]:
    """Each claim in each condition that it is judged in."""
    return [
        (at, number)
        for at in manifest.conditions
        for number, claim in enumerate(claims)
        if _is_judged(claim, at, manifest)
    ]


def look_path(claims: Sequence[Claim], records: Records, alpha: float = ALPHA) -> LookPath:
    """The looks of the ledger and those that judging these records now adds."""
    manifest, cells = records.manifest, records.cells
    subject = _Subject.of(manifest)
    environments = tuple(sorted({where for where in cells["environment"] if where}))
    series = subject.series(manifest.ledger, environments)
    units = {
        (condition, number): identify(claims[number], condition, manifest, records.directions)
        for condition, number in units_of(claims, manifest)
    }
    here = set(cells["seed"])
    waiting = cells[cells["status"].isin(() if records.whole else _OPEN)]
    open_seeds: dict[tuple[str, str], set[int]] = {}
    for arm, condition, seed in zip(waiting["arm"], waiting["condition"], waiting["seed"], strict=True):
        open_seeds.setdefault((arm, condition), set()).add(seed)
    of_units = {unit: cells_of(claims[unit[1]], unit[0], manifest) for unit in units}
    available = {
        unit: tuple(
            seed
            for seed in manifest.seeds
            if seed in here and not any(seed in open_seeds.get(cell, ()) for cell in waited)
        )
        for unit, waited in of_units.items()
    }
    judged_values = JudgedValues(records)

    def values(unit: Unit, seeds: Collection[int], absent: Collection[CellName]) -> str:
        return judged_values.of(claims[unit[1]], unit[0], seeds, absent)

    before = series.looks if series else ()
    taken = list(takewhile(lambda look: look.trials.keys() <= here, before))
    path = LookPath(tuple(taken), len(taken), series, units, of_units, available, values, digest_of_all(list(claims)))
    if len(taken) < len(before):
        return path  # a sequential study that is run again has not come to the others yet
    columns = (cells[name] for name in ("condition", "arm", "seed", "status"))
    statuses = {(str(at), str(arm), int(seed)): status for at, arm, seed, status in zip(*columns, strict=True)}
    results = {cell for cell, status in statuses.items() if status in (FINISHED, DIVERGED)}

    def take(judged: Collection[Unit], seeds: Sequence[int], stated: bool) -> None:
        nonlocal path
        known = {seed for look in path.looks for seed in look.trials}
        spent = [look.error for look in path.looks]
        error = next_error(spent, stated, len(manifest.looks), alpha, manifest.later_claims)
        added = {seed: subject.trials.get(seed, ()) for seed in seeds if seed not in known}
        waited = {(at, arm) for unit in judged for arm, at in of_units[unit]} & {cell[:2] for cell in statuses}
        absent = tuple(sorted({(*each, seed) for each in waited for seed in seeds} - results))
        some = tuple(seeds) if not known <= set(seeds) else None
        named = " ".join(sorted({at_look(units[unit], values(unit, seeds, absent)) for unit in judged}))
        look = Look(error, added, environments, named, some, absent)
        ids = sorted(trial for seed in seeds for trial in subject.trials.get(seed, ()))
        look = replace(look, id=digest([len(path.looks), error, named, list(environments), ids]))
        path = replace(path, looks=(*path.looks, look))

    everywhere = [seed for seed in manifest.seeds if all(seed in found for found in available.values())]
    for count in manifest.looks:
        seeds = manifest.seeds[:count]
        if set(seeds) <= set(everywhere) and not set(seeds) <= {seed for look in path.looks for seed in look.trials}:
            take(list(units), seeds, stated=True)
    judged, seeds = _news(path, claims, results, manifest.looks)
    if judged:
        done = frozenset(judged).union(*path.judged)
        shared = {unit for unit in units if not claims[unit[1]].exact}
        take(judged, seeds, stated=set(manifest.seeds) <= set(seeds) and done >= shared)
    return path


def _news(
    path: LookPath, claims: Sequence[Claim], results: Collection[CellName], declared: Sequence[int]
) -> tuple[list[Unit], tuple[int, ...]]:
    """The claims that a look would judge, and with which seeds: all those with which their trials have ended.

    Those are claims that were never judged, and those whose arms have results that their last look did not have. In a
    study that declares its looks, only the former, and from the first of these looks on. A claim of which fewer than
    two seeds have ended is not among them.
    """
    last: dict[Unit, tuple[frozenset[int], frozenset[CellName]]] = {}
    for look, seeds, judged in zip(path.looks, path.seeds, path.judged, strict=True):
        last |= dict.fromkeys(judged, (seeds, frozenset(look.absent)))
    least = max([2, *declared[:1]])

    def has_news(unit: Unit, seeds: Collection[int]) -> bool:
        if len(seeds) < least or claims[unit[1]].exact:  # arithmetic decides an exact claim, at no share of the error
            return False
        if unit not in last:
            return True
        seen, absent = last[unit]
        own = {(at, arm) for arm, at in path.cells[unit]}
        again = any(cell in results and cell[2] in seeds and cell[:2] in own for cell in absent)
        return not declared and (not set(seeds) <= seen or again)

    most = max(map(len, path.available.values()), default=0)
    waiting = [
        unit
        for unit, seeds in path.available.items()
        # arms that still train hold the others back, or each report in between would be a look at what has ended
        if has_news(unit, seeds) or (not declared and not claims[unit[1]].exact and 2 <= len(seeds) < most)
    ]
    if not any(has_news(unit, path.available[unit]) for unit in waiting):
        return [], ()
    first = path.available[waiting[0]]
    shared = tuple(seed for seed in first if all(seed in path.available[unit] for unit in waiting))
    return [unit for unit in waiting if has_news(unit, shared)], shared


def record_looks(study_dir: Path, runs_dir: Path, claims: Sequence[Claim], records: Records) -> Records:
    """The records with the ledger brought up to date, in the study's manifest too unless the store may only be read.

    Looks that its trials remember of other folders are taken over. Without claims nothing is judged.
    """
    if not claims:
        return records
    store = Store(runs_dir)
    manifest = records.manifest
    subject = _Subject.of(manifest)
    elsewhere = remembered(store, _compared(claims, manifest), _settings_of(claims, manifest))
    path: LookPath | None = None

    def update(ledger: Ledger) -> Ledger:
        nonlocal path
        ledger = _with_remembered(ledger, subject, elsewhere)
        path = look_path(claims, replace(records, manifest=replace(manifest, ledger=ledger)))
        return ledger.add(path.added, path.series, subject.settings) if path.added else ledger

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


def _with_remembered(ledger: Ledger, subject: _Subject, elsewhere: Sequence[Look]) -> Ledger:
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

    Only where that is about some of its trials; looks that these remember themselves come from there.
    """
    subject, claims = _Subject.of(manifest), claims_of(manifest)
    try:
        with published.open(encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file))
        known = {trial for ids in subject.trials.values() for trial in ids}
        looks = looks_in_rows(rows)[0] if known.intersection(row["trial"] for row in rows) else ()
        facts = [json.loads(row["note"]) for row in rows if row["metric"] == "claim" and row["status"] == "stated"]
        stated = stated_claims(facts) if looks else {}
    except (OSError, ValueError, KeyError, TypeError, csv.Error):
        return  # a file that nobody can read holds no looks
    looks = tuple(replace(look, trials={seed: subject.trials.get(seed, ()) for seed in look.trials}) for look in looks)

    def update(ledger: Ledger) -> Ledger:
        if subject.series(ledger) or not looks:
            return ledger
        own = remembered(Store(runs_dir), _compared(claims, manifest), _settings_of(claims, manifest))
        known = [(look.error, _as_published(look)) for look in own]
        missing = [look for look in looks if (look.error, _as_published(look)) not in known]
        added = ledger.add(missing, None, subject.settings) if missing else ledger
        return replace(added, stated={**stated, **ledger.stated})

    update_ledger(study_dir, update)


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
    series = _Subject.of(manifest).series(ledger)
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
        found[unit] = verdict if verdict.claim.exact and not verdict.claim.withdrawn else _not_judged(verdict)
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
