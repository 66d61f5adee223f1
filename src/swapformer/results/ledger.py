"""The ledger of a study: with which seeds its claims were judged, and how much of the error each look took.

It only grows. A check sum in the manifest goes with it, so that one that was cut or edited is noticed; a manifest
that lacks it although a report was drawn says that looks before are unknown.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

LOOK = "look@"
"""The metric of a look's rows in `results.csv` begins with this; the number of seeds follows."""
UNKNOWN = LOOK + "unknown"
"""The metric of the row which says that looks before are unknown."""


@dataclass(frozen=True)
class Look:
    """One look at a study: the error that it took, and the seeds that it added, each with the ids of its trials.

    `claims`: digests of the claims that were judged, with a space between them, or one of all together in older files;
    empty in a file that does not tell. A look with other claims may add no seed.
    """

    error: float
    trials: Mapping[int, tuple[str, ...]]
    environments: tuple[str, ...] = ()
    claims: str = ""

    @classmethod
    def from_json(cls, raw: Mapping[str, Any], claims: str = "") -> Look:
        """A look as the manifest has it."""
        trials = {int(seed): tuple(map(str, ids)) for seed, ids in raw["trials"].items()}
        return cls(float(raw["error"]), trials, tuple(map(str, raw["environments"])), str(raw.get("claims", claims)))

    def to_json(self) -> dict[str, Any]:
        """As the manifest has it."""
        trials = {str(seed): list(ids) for seed, ids in self.trials.items()}
        environments = list(self.environments)
        return {"error": self.error, "environments": environments, "claims": self.claims, "trials": trials}


@dataclass(frozen=True)
class Series:
    """The looks at trials of the same `settings`, whatever was claimed of them.

    Settings are the ids of what was trained, whatever the seed; a series from a `results.csv`, or of before they were
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

    def is_about(
        self,
        trials: Mapping[int, Collection[str]],
        environments: Collection[str],
        settings: frozenset[str] = frozenset(),
    ) -> bool:
        """Whether these are looks at the same environment class and trials, whatever was claimed.

        An arm may have come or gone, but settings, or trials of one seed, that differ on both sides are of another
        study: one with another budget or scale.
        """
        known = {environment for look in self.looks for environment in look.environments}
        if known and environments and known.isdisjoint(environments):
            return False
        if self.settings and settings and not (self.settings <= settings or settings <= self.settings):
            return False
        shared = [(set(ids), set(trials[s])) for look in self.looks for s, ids in look.trials.items() if trials.get(s)]
        return all(before <= now or now <= before for before, now in shared)


@dataclass(frozen=True)
class Ledger:
    """All looks of a study folder; `unknown` says why there may have been others, or is empty."""

    series: tuple[Series, ...] = ()
    unknown: str = ""

    def add(self, looks: Sequence[Look], after: Series | None, settings: frozenset[str] = frozenset()) -> Ledger:
        """The ledger with more looks: at the study of the series `after`, or at another one."""
        if after is None or after not in self.series:
            before = after.looks if after is not None else ()
            return replace(self, series=(*self.series, Series((*before, *looks), settings)))
        longer = replace(after, looks=(*after.looks, *looks), settings=after.settings | settings)
        return replace(self, series=tuple(longer if each is after else each for each in self.series))

    def to_json(self) -> dict[str, Any]:
        """As the manifest has it."""
        series = [each.to_json() for each in self.series]
        return {"series": series, "unknown": self.unknown, "check": _check(series, self.unknown)}

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> Ledger:
        """The ledger of a manifest; what is left of one that was cut is kept, and said to be all that is known."""
        try:
            found = tuple(map(Series.from_json, raw["series"]))
            unknown = str(raw["unknown"])
            intact = raw["check"] == _check(raw["series"], raw["unknown"])
        except (KeyError, TypeError, ValueError, AttributeError):
            found, unknown, intact = (), "", False
        return cls(found, unknown if intact else "the ledger in manifest.json was cut or edited")


def look_rows(looks: Sequence[Look], unknown: str) -> list[dict[str, str]]:
    """The rows of `results.csv` that hold these looks: one for each seed, at the look that added it.

    A look with other claims that added no seed has one row without a seed. Notes are digests of the claims.
    """
    rows = [{"metric": UNKNOWN, "status": "judged"}] if unknown else []
    seeds = 0
    for look in looks:
        seeds += len(look.trials)
        rows += [
            {
                "seed": seed, "metric": f"{LOOK}{seeds}", "value": repr(look.error), "status": "judged",
                "environment": "; ".join(look.environments), "note": look.claims,
            }
            for seed in (map(str, look.trials) if look.trials else [""])
        ]  # fmt: skip
    return rows


def looks_in_rows(rows: Sequence[Mapping[str, str]]) -> tuple[tuple[Look, ...], str]:
    """The looks that rows of `results.csv` hold, and why others are unknown; trials have no ids in them."""
    unknown = any(row["metric"] == UNKNOWN for row in rows)
    found: dict[tuple[str, str], list[Mapping[str, str]]] = {}
    for row in rows:
        if row["metric"].startswith(LOOK) and row["metric"] != UNKNOWN:
            found.setdefault((row["metric"], row.get("note", "")), []).append(row)
    looks = tuple(
        Look(
            float(added[0]["value"]),
            {int(row["seed"]): () for row in added if row["seed"]},
            tuple(filter(None, added[0]["environment"].split("; "))),
            note,
        )
        for (_, note), added in found.items()
    )
    return looks, "results.csv says so" if unknown else ""


def digest(value: object) -> str:
    """A short hash of plain data; whole numbers and their floats are the same."""
    plain = json.loads(json.dumps(value), parse_int=float)
    return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()[:16]


def _check(series: object, unknown: object) -> str:
    return digest([series, unknown])
