"""The ledger of a study: with which seeds its claims were judged, and how much of the error each look took.

It only grows. A check sum in the manifest goes with it, so that one that was cut or edited is noticed; a manifest
that lacks it although a report was drawn says that looks before are unknown.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from typing import Any

LOOK = "look@"
"""The metric of a look's rows in `results.csv` begins with this; the number of seeds follows."""
OF = " of "
"""What stands between the seeds of such a look and those up to it, where it judged with some of them."""
AGAIN = "#"
"""What stands before a look's number, where another one has its name and its claims."""
ABSENT = "absent"
"""The status of the row of a look that lists the cells which had no result."""
UNKNOWN = LOOK + "unknown"
"""The metric of the row which says that looks before are unknown."""


LARGEST = 0.04
"""What one look may take."""
CellName = tuple[str, str, int]
"""Condition, arm and seed."""


@dataclass(frozen=True)
class Look:
    """One look at a study: the error that it took, and the seeds that it added, each with the ids of its trials.

    `claims`: the claims that were judged, each by what identifies it (`statistics.claim_identity`), with a space
    between them; in older files digests, or one of all together; empty in a file that does not tell. A look with other
    claims may add no seed.

    `seeds`: those that it judged with, where they are not all seeds up to it. `absent`: cells of these seeds that had
    no result: a failed trial that is run again changes nothing at this look. `id`: what trials remember it by.
    """

    error: float
    trials: Mapping[int, tuple[str, ...]]
    environments: tuple[str, ...] = ()
    claims: str = ""
    seeds: tuple[int, ...] | None = None
    absent: tuple[CellName, ...] = ()
    id: str = ""

    @classmethod
    def from_json(cls, raw: Mapping[str, Any], claims: str = "") -> Look:
        """A look as the manifest has it."""
        trials = {int(seed): tuple(map(str, ids)) for seed, ids in raw["trials"].items()}
        return cls(
            _share(raw["error"]), trials, tuple(map(str, raw["environments"])), str(raw.get("claims", claims)),
            None if raw.get("seeds") is None else tuple(map(int, raw["seeds"])),
            cell_names(raw.get("absent", ())),
            str(raw.get("id", "")),
        )  # fmt: skip

    def to_json(self) -> dict[str, Any]:
        """As the manifest has it."""
        trials = {str(seed): list(ids) for seed, ids in self.trials.items()}
        environments = list(self.environments)
        return {
            "error": self.error, "environments": environments, "claims": self.claims, "trials": trials,
            **({} if self.seeds is None else {"seeds": list(self.seeds)}),
            **({"absent": [list(cell) for cell in self.absent]} if self.absent else {}),
            **({"id": self.id} if self.id else {}),
        }  # fmt: skip


@dataclass(frozen=True)
class Series:
    """The looks at trials of the same study, whatever was claimed of them.

    `settings` are the ids of what was trained, whatever the seed; a series from a `results.csv`, or of before they were
    kept, has none.
    """

    looks: tuple[Look, ...]
    settings: frozenset[str] = frozenset()

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> Series:
        """A series as the manifest has it."""
        of_all = str(raw.get("claims", ""))
        looks = tuple(Look.from_json(look, of_all) for look in raw["looks"])
        return cls(looks, frozenset(map(str, raw.get("settings", ()))))

    def to_json(self) -> dict[str, Any]:
        """As the manifest has it."""
        content: dict[str, Any] = {"looks": [look.to_json() for look in self.looks]}
        return {**content, "settings": sorted(self.settings)} if self.settings else content

    @property
    def seeds(self) -> tuple[int, ...]:
        """All seeds that were looked at, in their order."""
        return tuple(seed for look in self.looks for seed in look.trials)

    def is_about(self, trials: Mapping[int, Collection[str]], settings: frozenset[str] = frozenset()) -> bool:
        """Whether these are looks at any of the same trials or settings.

        Arms, seeds and claims may have come or gone. A study with another budget or scale shares no trial.
        """
        if self.settings and settings:
            return not self.settings.isdisjoint(settings)
        shared = [(ids, trials[seed]) for look in self.looks for seed, ids in look.trials.items() if trials.get(seed)]
        named = [(before, now) for before, now in shared if before]
        return not named or any(not set(before).isdisjoint(now) for before, now in named)


@dataclass(frozen=True)
class Ledger:
    """All looks of a study folder; `unknown` says why there may have been others, or is empty.

    `stated`: claim, by what identifies it → the seeds with which trials of its arms had ended when it was first stated;
    None where that was not recorded. `seen`: the claims of which results were there before any look judged them, each
    with the ids of what its arms train; they count at looks even where they are made no longer.
    """

    series: tuple[Series, ...] = ()
    unknown: str = ""
    stated: Mapping[str, tuple[int, ...] | None] = field(default_factory=dict)
    seen: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def about(self, trials: Mapping[int, Collection[str]], settings: frozenset[str] = frozenset()) -> Series | None:
        """All looks at any of these trials or settings as one series; None where there was none.

        Older versions kept looks at overlapping trials apart.
        """
        found = [each for each in self.series if each.looks and each.is_about(trials, settings)]
        looks = tuple(look for each in found for look in each.looks)
        return Series(looks, frozenset().union(*(each.settings for each in found))) if found else None

    def add(self, looks: Sequence[Look], after: Series | None, settings: frozenset[str] = frozenset()) -> Ledger:
        """The ledger with more looks: at the study of the series `after`, as `about` gave it, or at another one."""
        if after is None:
            return replace(self, series=(*self.series, Series(tuple(looks), settings)))
        longer = Series((*after.looks, *looks), after.settings | settings)
        known = {id(look) for look in after.looks}
        merged = [each for each in self.series if each.looks and all(id(look) in known for look in each.looks)]
        kept = tuple(longer if each in merged[:1] else each for each in self.series if each not in merged[1:])
        return replace(self, series=kept if merged else (*kept, longer))

    def with_seen(self, claims: Mapping[str, tuple[str, ...]]) -> Ledger:
        """The ledger with claims of which results are there though no look has judged them."""
        new = {each: ids for each, ids in claims.items() if not any(are_same(each, known) for known in self.seen)}
        return replace(self, seen={**self.seen, **new}) if new else self

    def to_json(self) -> dict[str, Any]:
        """As the manifest has it."""
        series = [each.to_json() for each in self.series]
        stated = {claim: None if seeds is None else list(seeds) for claim, seeds in self.stated.items()}
        own = {"series": series, "unknown": self.unknown, **({"stated": stated} if stated else {})}
        own |= {"seen": {claim: list(ids) for claim, ids in self.seen.items()}} if self.seen else {}
        return {**own, "check": _check(own)}

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> Ledger:
        """The ledger of a manifest; what is left of one that was cut is kept, and said to be all that is known."""
        try:
            found = tuple(map(Series.from_json, raw["series"]))
            unknown = str(raw["unknown"])
            stated = stated_claims(raw.get("stated", {}).items())
            seen = {str(claim): tuple(map(str, ids)) for claim, ids in raw.get("seen", {}).items()}
            intact = raw["check"] == _check(raw)
        except (KeyError, TypeError, ValueError, AttributeError, RecursionError):
            found, unknown, stated, seen, intact = (), "", {}, {}, False
        return cls(found, unknown if intact else "the ledger was cut or edited", stated, seen)


def look_rows(looks: Sequence[Look], unknown: str) -> list[dict[str, str]]:
    """The rows of `results.csv` that hold these looks: one for each seed, at the look that added it.

    A look with other claims that added no seed has one row without a seed; one that judged with some of the seeds up to
    it, `look@5 of 8`, has a row for each of these. Notes are the claims; cells that had no result follow.
    """
    rows = [{"metric": UNKNOWN, "status": "judged"}] if unknown else []
    known: dict[int, None] = {}
    named: set[tuple[str, str]] = set()
    for number, look in enumerate(looks, 1):
        known |= dict.fromkeys(look.trials)
        name = f"{LOOK}{len(known)}" if look.seeds is None else f"{LOOK}{len(look.seeds)}{OF}{len(known)}"
        name += f"{AGAIN}{number}" if (name, look.claims) in named else ""  # failed trials were run again
        named.add((name, look.claims))
        of_look = {
            "metric": name, "value": repr(look.error), "status": "judged",
            "environment": "; ".join(look.environments), "note": look.claims,
        }  # fmt: skip
        seeds: Sequence[int] = tuple(look.trials) if look.seeds is None else look.seeds
        rows += [{**of_look, "seed": seed} for seed in (map(str, seeds) if seeds else [""])]
        if look.absent:
            rows.append({**of_look, "status": ABSENT, "note": f"{look.claims}\n{json.dumps(look.absent)}"})
    return rows


def looks_in_rows(rows: Sequence[Mapping[str, str]]) -> tuple[tuple[Look, ...], str]:
    """The looks that rows of `results.csv` hold, and why others are unknown; trials have no ids in them."""
    unknown = any(row["metric"] == UNKNOWN for row in rows)
    found: dict[tuple[str, str], list[Mapping[str, str]]] = {}
    absent: dict[tuple[str, str], tuple[CellName, ...]] = {}
    for row in rows:
        if row["metric"].startswith(LOOK) and row["metric"] != UNKNOWN:
            claims, _, cells = row.get("note", "").partition("\n")
            key = row["metric"], claims
            if row["status"] == ABSENT:
                absent[key] = cell_names(json.loads(cells))
            else:
                found.setdefault(key, []).append(row)
    looks, known = list[Look](), set[int]()
    for key, of_look in found.items():
        seeds = tuple(int(row["seed"]) for row in of_look if row["seed"])
        new = {seed: () for seed in seeds if seed not in known}
        known |= new.keys()
        environments = tuple(filter(None, of_look[0]["environment"].split("; ")))
        some = seeds if OF in key[0] else None
        looks.append(Look(_share(of_look[0]["value"]), new, environments, key[1], some, absent.get(key, ())))
    return tuple(looks), "results.csv says so" if unknown else ""


def cell_names(raw: Iterable[Sequence[Any]]) -> tuple[CellName, ...]:
    """Cells as JSON has them."""
    return tuple((str(condition), str(arm), int(seed)) for condition, arm, seed in raw)


def _share(error: object) -> float:
    """The error that a look took; of one that was edited to be no share, what a first look takes at most."""
    found = float(str(error))
    return found if 0 < found <= 1 else LARGEST


def are_same(one: str, other: str) -> bool:
    """Whether two identities are of the same claim."""
    parts = zip_longest(one.split("."), other.split("."), fillvalue="")
    return all(here == there or not here or not there for here, there in parts)


def without_settings(identity: str) -> str:
    """An identity as a table of results can have it, which does not say what arms trained."""
    parts = identity.split(".")
    return ".".join([*parts[:3], *[""] * len(parts[3:5]), *parts[5:]]).rstrip(".")


def is_older(identity: str) -> bool:
    """Whether an older version wrote it: it does not tell conditions apart."""
    return "." not in identity


def stated_claims(facts: Iterable[Sequence[Any]]) -> dict[str, tuple[int, ...] | None]:
    """Of each claim, the seeds with which trials had ended when it was first stated, as `results.csv` has them."""
    return {str(claim): None if seeds is None else tuple(map(int, seeds)) for claim, seeds in facts}


def digest(value: object) -> str:
    """A short hash of plain data; whole numbers and their floats are the same."""
    plain = json.loads(json.dumps(value), parse_int=float)
    return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()[:16]


def _check(raw: Mapping[str, Any]) -> str:
    known = [raw["series"], raw["unknown"]]
    return digest([*known, *(raw[name] for name in ("stated", "seen") if raw.get(name))])
