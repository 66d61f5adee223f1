"""What identifies a claim in one condition of a grid, however it is worded, spelled or ordered.

Looks are counted by it: a claim that is defined otherwise, or about other trials, is judged at a look of its own. It
has six parts with a point between them, each a digest,

    what is claimed
    how its metrics are defined, in which condition
    which way is better
    what its arms train
    which of them trains which
    the values that a look judged (`judged_values`)

and empty where it is not known: which way is better before trials have ended, what arms train in a table of results,
and the values but at a look. Older versions wrote the first part only, or the first four. Two are the same claim where
the parts that both have are equal.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any

from swapformer.report.derive import ways_of
from swapformer.report.statistics.claims import Claim
from swapformer.results.ledger import digest
from swapformer.results.manifest import Manifest

_SHORT = 8
"""Characters of a part but the first."""
_PARTS = 6


def identify(claim: Claim, condition: str, manifest: Manifest, directions: Mapping[str, str]) -> str:
    """What identifies a claim in a condition; `directions`: of the metrics, as far as they are known."""
    defined = {name: manifest.derive[name] for name in sorted(derived_from(claim.metrics, manifest))}
    ranges = {metric: manifest.ranges[metric] for metric in claim.metrics if metric in manifest.ranges}
    ways = {metric: directions[metric] for metric in sorted(claim.metrics) if directions.get(metric)}
    settings = [manifest.settings.get(at, "") for at in sorted(claim.cells(condition, ()))]
    parts = [
        said(claim),
        digest([defined, ranges, "" if claim.spans else condition])[:_SHORT],
        digest(ways)[:_SHORT] if ways else "",
        digest(sorted(settings))[:_SHORT] if any(settings) else "",
        digest(settings)[:_SHORT] if any(settings) else "",
    ]
    return ".".join(parts).rstrip(".")


def at_look(identity: str, values: str) -> str:
    """The identity of a claim at a look that judged values with this digest."""
    parts = identity.split(".")
    return ".".join([*parts, *[""] * (_PARTS - 1 - len(parts)), values[:_SHORT]])


def said(claim: Claim) -> str:
    """A digest of what is claimed, without its wording, order or spelling."""
    return digest(_said(claim))


def digest_of_all(claims: list[Claim]) -> str:
    """A digest of several claims together, by which older versions named what a look was at."""
    return digest(sorted(map(_said, claims)))


def _said(claim: Claim) -> str:
    """What is claimed, as text: neither in which conditions, each of which is a part of its own, nor in which order."""
    apart: dict[str, Any] = {"text": "", "withdrawn": "", "than": sorted(claim.than), "at": None}
    if claim.terms:
        terms = sorted(claim.terms, key=lambda term: (term.name, term.metric, term.place, term.weight))
        names = list(dict.fromkeys(term.name for term in terms))
        apart |= {"arm": "; ".join(names), "metric": terms[0].metric, "terms": [asdict(term) for term in terms]}
    return json.dumps({**asdict(claim), **apart}, sort_keys=True)


def derived_from(metrics: tuple[str, ...], manifest: Manifest) -> set[str]:
    """The numbers under `derive` that metrics are, or are made of: also behind the logarithm that a slope takes."""
    ways = ways_of(manifest.derive, manifest.claims)
    found: set[str] = set()
    waiting: list[str] = list(metrics)
    while waiting:
        name = waiting.pop()
        if name in ways and name not in found:
            found.add(name)
            waiting += _texts(ways[name])
    return found & manifest.derive.keys()


def _texts(value: Any) -> Iterator[str]:
    """All texts in plain data."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, held in value.items():
            yield from (*_texts(key), *_texts(held))
    elif isinstance(value, list | tuple):
        for held in value:
            yield from _texts(held)
