"""Trials remember at which looks they were judged, so that another folder, or a deleted one, does not forget them.

A look is remembered by a study that compares the same trials again: where two arms of one claim have trials that it
judged, or the only arm of one. A shared baseline is no such thing, and new seeds of the same settings are new data.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from swapformer.results.files import write_atomic
from swapformer.results.ledger import Look, cell_names, digest
from swapformer.results.store import Store

JUDGED = "judged.json"
"""The looks at which a trial was judged, in its folder."""
Compared = Collection[Mapping[int, str]]
"""The arms that one claim compares, each with its trials by seed."""


def remember(store: Store, look: Look, trials: Iterable[str]) -> None:
    """Have the trials that a look judged remember it."""
    mark = {
        "id": look.id, "error": look.error, "claims": look.claims, "environments": list(look.environments),
        "absent": look.absent,
    }  # fmt: skip
    for trial in dict.fromkeys(trials):
        path = store.directory(trial) / JUDGED
        if path.parent.is_dir():
            write_atomic(path, json.dumps([*_marks(path), mark]) + "\n")


def remembered(store: Store, claims: Iterable[Compared], settings: Collection[str]) -> tuple[Look, ...]:
    """The looks at trials that any of the claims compares again, the first ones first.

    `settings`: the ids of what the arms train; marks of older versions say whether theirs were the same.
    """
    found: dict[str, Look] = {}
    own = digest(sorted(settings))
    for compared in claims:
        by_arm = [_seen(store, trials, own) for trials in compared]
        for name in dict.fromkeys(name for each in by_arm for name in each):
            arms = [each[name] for each in by_arm if name in each]
            if len(arms) < min(2, len(by_arm)):
                continue
            look, _ = next(iter(arms))
            known = found.setdefault(name, look)
            trials = {seed: dict.fromkeys(ids) for seed, ids in known.trials.items()}
            for _, of in arms:
                for seed, trial in of.items():
                    trials.setdefault(seed, {})[trial] = None
            found[name] = replace(known, trials={seed: tuple(ids) for seed, ids in trials.items()})
    return _in_order(found.values())


def _seen(store: Store, trials: Mapping[int, str], settings: str) -> dict[str, tuple[Look, dict[int, str]]]:
    """Id → each look that trials of an arm remember, with these trials by seed."""
    found: dict[str, tuple[Look, dict[int, str]]] = {}
    for seed, trial in trials.items():
        for mark in _marks(store.directory(trial) / JUDGED):
            try:
                name, claims = str(mark.get("id", "")), str(mark["claims"])
                if not name:  # of an older version, which knew a look by its settings and number
                    name = f"{mark['settings']}/{mark['number']}"
                    claims = claims if mark["settings"] == settings else "another"
                environments, absent = tuple(map(str, mark["environments"])), cell_names(mark.get("absent", ()))
                look = Look(float(mark["error"]), {}, environments, claims, absent=absent, id=name)
            except (KeyError, TypeError, ValueError):
                continue
            found.setdefault(name, (look, {}))[1][seed] = trial
    return found


def _in_order(looks: Iterable[Look]) -> tuple[Look, ...]:
    """Looks with the seeds that each added, and with those that it judged."""
    ordered: list[Look] = []
    for look in sorted(looks, key=lambda each: -each.error):
        judged = set(look.trials)
        seeds = tuple(sorted(judged))  # in another folder they are not all up to it
        added = {seed: ids for seed, ids in look.trials.items() if not any(seed in each.trials for each in ordered)}
        ordered.append(replace(look, trials=added, seeds=seeds))
    return tuple(ordered)


def _marks(path: Any) -> Sequence[dict[str, Any]]:
    """The looks that a trial remembers; none where its file is missing or damaged."""
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return []
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []
