"""The looks at which the claims of a study are judged.

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
one that was judged at a look and has been taken out since still counts there, as undecided, and at later looks at
others of that look, which may have been kept because they looked better. So does one whose results were there although
no look had judged it. A look keeps the data that it was at: a failed trial that is run again counts from the next look
on. The environment class is part of that data. The ledger in the study's manifest holds the
looks; trials remember them too (`remembered_looks`). A report from the same seeds and claims is no look.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import takewhile

from swapformer.report.records import Records
from swapformer.report.statistics.claim_identity import at_look, digest_of_all, identify
from swapformer.report.statistics.claims import Claim
from swapformer.report.statistics.judged_values import JudgedValues, cells_of
from swapformer.report.statistics.verdicts import ALPHA, FIRST, RESERVED
from swapformer.results.ledger import CellName, Ledger, Look, Series, are_same, digest, is_older, without_settings
from swapformer.results.manifest import Manifest
from swapformer.results.record import DIVERGED, FINISHED

LEAST = 1e-9
"""The smallest error of a look: of some thirty looks later ones together take next to nothing."""
OPEN = ("missing", "running", "interrupted")
_GONE = "gone"
"""What stands in place of the values of a claim that a look counts, but could not judge."""
Unit = tuple[str, int]
"""A condition, and the number of a claim that is judged in it."""


@dataclass(frozen=True)
class LookPath:
    """The looks that a study was judged at, those of before first.

    `taken`: how many of them the ledger has, and `series` these as one. `units`: each claim in each condition, with
    what identifies it. `cells`: the arms that each waits for, with their conditions, and `available`: the seeds with
    which their trials have ended. `values`: the digest of those that a claim has now, with these seeds and without
    these cells. `seen`: the claims that no look has judged although results are there (`Ledger.seen`).
    """

    looks: tuple[Look, ...]
    taken: int
    series: Series | None
    units: Mapping[Unit, str]
    cells: Mapping[Unit, Collection[tuple[str, str]]]
    available: Mapping[Unit, tuple[int, ...]]
    values: Callable[[Unit, Collection[int], Collection[CellName]], str]
    of_all: str = ""
    seen: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

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

    def taken_out(self, judged: Collection[Unit], seen: Collection[str]) -> list[str]:
        """What identifies the claims that count at a look at those which are `judged`, though they are made no longer.

        They were at an earlier look together with one of these, or their results were `seen` before any look. The best
        of many claims is no better for having been left alone.
        """
        kept = [self.units[unit] for unit in judged]
        found = list(seen)
        for look in self.looks:
            named = [_without_values(each) for each in look.claims.split() if look.claims != self.of_all]
            if any(are_same(own, each) for own in kept for each in named):
                found += named
        gone: list[str] = []
        for each in found:
            if not any(are_same(each, other) for other in (*self.units.values(), *gone)):
                gone.append(each)
        return gone

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
        return f"gone{digest(identity)}.{_GONE}" if other else short

    @property
    def error(self) -> float:
        """The probability that the looks together give any wrong verdict, at most."""
        return math.fsum(look.error for look in self.looks)


@dataclass(frozen=True)
class JudgedTrials:
    """What looks are about: the trials of all arms, by seed, and the ids of their settings."""

    trials: Mapping[int, tuple[str, ...]]
    settings: frozenset[str]

    @classmethod
    def of(cls, manifest: Manifest) -> JudgedTrials:
        trials: dict[int, list[str]] = {}
        for cell in manifest.cells:
            if cell.trial:
                trials.setdefault(cell.seed, []).append(cell.trial)
        ids = {seed: tuple(sorted(found)) for seed, found in trials.items()}
        return cls(ids, frozenset(manifest.settings.values()))

    def series(self, ledger: Ledger) -> Series | None:
        """The looks of a ledger at it."""
        return ledger.about(self.trials, self.settings)


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
    subject = JudgedTrials.of(manifest)
    environments = tuple(sorted({where for where in cells["environment"] if where}))
    series = subject.series(manifest.ledger)
    units = {
        (condition, number): identify(claims[number], condition, manifest, records.directions)
        for condition, number in units_of(claims, manifest)
    }
    here = set(cells["seed"])
    waiting = cells[cells["status"].isin(() if records.whole else OPEN)]
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

    seen = [
        identity
        for identity, settings in manifest.ledger.seen.items()
        if not settings or not subject.settings or not subject.settings.isdisjoint(settings)
    ]

    def take(judged: Collection[Unit], seeds: Sequence[int], stated: bool) -> None:
        nonlocal path
        known = {seed for look in path.looks for seed in look.trials}
        spent = [look.error for look in path.looks]
        error = next_error(spent, stated, len(manifest.looks), alpha, manifest.later_claims)
        added = {seed: subject.trials.get(seed, ()) for seed in seeds if seed not in known}
        waited = {(at, arm) for unit in judged for arm, at in of_units[unit]} & {cell[:2] for cell in statuses}
        absent = tuple(sorted({(*each, seed) for each in waited for seed in seeds} - results))
        some = tuple(seeds) if not known <= set(seeds) else None
        own = {at_look(units[unit], values(unit, seeds, absent)) for unit in judged}
        gone = {each if is_older(each) else at_look(each, _GONE) for each in path.taken_out(judged, seen)}
        named = " ".join(sorted(own | gone))
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
    ever = frozenset[Unit]().union(*path.judged)
    unread = {
        units[unit]: tuple(sorted({manifest.settings[cell] for cell in of_units[unit] if cell in manifest.settings}))
        for unit in units
        if unit not in ever and not claims[unit[1]].exact and _has_results(of_units[unit], results)
    }
    return replace(path, seen=unread)


def _has_results(arms: Collection[tuple[str, str]], results: Collection[CellName]) -> bool:
    """Whether two arms have a result with the same seed, or the only one with any: what they compare is known."""
    counts = Counter(seed for at, arm, seed in results if (arm, at) in arms)
    return max(counts.values(), default=0) >= min(2, len(arms))


def _without_values(identity: str) -> str:
    """What identifies a claim, whatever the values that a look judged."""
    return ".".join(identity.split(".")[:5])


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


def _is_judged(claim: Claim, condition: str, manifest: Manifest) -> bool:
    """Whether a claim is judged in this condition; one that compares conditions is, in the first that it names."""
    if claim.spans:
        named = {term.condition for term in claim.terms}
        return condition == next(each for each in manifest.conditions if each in named)
    return claim.at is None or condition in claim.at
