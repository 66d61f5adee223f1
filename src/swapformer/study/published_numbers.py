"""Parses `published` of a study file: numbers from papers, which stand in figures as hollow marks."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from typing import Any

from swapformer.errors import UsageError, quote, suggest
from swapformer.results.arms import PublishedNumber


def parse_published(raw: object, arms: Collection[str], metrics: Collection[str]) -> tuple[PublishedNumber, ...]:
    """The numbers of `published: [{metric: …, source: …, points: [{arm: h1, value: 5.29}, {x: 64, value: 5.0}]}]`.

    Raises UsageError for what is wrong first.
    """
    if not isinstance(raw, list):
        raise UsageError(f"`published` must be a list of {{metric, source, points}}, not {quote(raw)}")
    found = []
    for index, entry in enumerate(raw, 1):
        where = f"`published` {index}"
        if not isinstance(entry, dict) or set(entry) != {"metric", "source", "points"}:
            raise UsageError(f"{where} must have metric, source and points, and no other key, but is {quote(entry)}")
        metric, source, points = entry["metric"], entry["source"], entry["points"]
        if not isinstance(metric, str) or metric not in metrics:
            raise UsageError(f"{where}: the study does not measure {quote(metric)}{suggest(str(metric), metrics)}")
        if not isinstance(source, str) or not source.strip():
            raise UsageError(f"{where}: `source` must name where the numbers stand, not {quote(source)}")
        if not isinstance(points, list) or not points:
            raise UsageError(f"{where}: `points` must be a list of {{arm or x, value}}, not {quote(points)}")
        found += [_point(point, metric, source.strip(), arms, where) for point in points]
    return tuple(found)


def _point(raw: Any, metric: str, source: str, arms: Collection[str], where: str) -> PublishedNumber:
    if not isinstance(raw, Mapping) or set(raw) not in ({"arm", "value"}, {"x", "value"}):
        raise UsageError(f"{where}: a point must have `value` and either `arm` or `x`, but is {quote(raw)}")
    for name in set(raw) - {"arm"}:
        number = raw[name]
        if isinstance(number, bool) or not isinstance(number, int | float) or not math.isfinite(number):
            raise UsageError(f"{where}: `{name}` of a point must be a number, not {quote(number)}")
    if "arm" in raw and raw["arm"] not in arms:
        raise UsageError(f"{where}: no arm {quote(raw['arm'])}{suggest(str(raw['arm']), arms)}")
    return PublishedNumber(metric, source, float(raw["value"]), raw.get("arm"), raw.get("x"))
