"""Parses the numbers that a study file states: `published`, `figures`, `ranges` and `must_beat`."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping
from typing import Any

from swapformer.errors import UsageError, quote, suggest
from swapformer.results.arms import PublishedNumber, ShownFigure


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


def parse_figures(raw: object) -> tuple[ShownFigure, ...]:
    """The figures of `figures: {learning_val_loss: {caption: …, x: …, y: …, lines: {a trigram counter: 1.9}}}`.

    None is no figure. Raises UsageError for what is wrong first. Whether a report draws them is known when it is built.
    """
    if raw is None:
        return ()
    if not isinstance(raw, Mapping):
        raise UsageError(f"`figures` must map names of figures to {{caption, x, y, lines}}, not {quote(raw)}")
    found = []
    for name, how in raw.items():
        where = f"`figures`: {quote(name)}"
        how = {} if how is None else how
        if not isinstance(how, Mapping) or set(how) - {"caption", "x", "y", "lines"}:
            raise UsageError(f"{where} may have caption, x, y and lines, and no other key, but is {quote(how)}")
        if not isinstance(name, str) or not re.fullmatch(r"[a-z0-9_]+", name):
            raise UsageError(f"{where} must be the name of a figure's file without .svg")
        lines = how.get("lines", {})
        for key in how.keys() - {"lines"}:
            if not isinstance(how[key], str) or not how[key].strip():
                raise UsageError(f"{where}: `{key}` must be a text, not {quote(how[key])}")
        for text, value in lines.items() if isinstance(lines, Mapping) else [("", None)]:
            if not isinstance(text, str) or not _is_number(value):
                raise UsageError(f"{where}: `lines` must map texts to numbers, not {quote(lines)}")
        found.append(ShownFigure(name, **{**how, "lines": {text: float(value) for text, value in lines.items()}}))
    return tuple(found)


def parse_ranges(raw: object, metrics: Collection[str]) -> dict[str, tuple[float, float]]:
    """The ranges of `ranges: {probe/replay/window/reach: [1, 41]}`: metric → its least and its largest value.

    Raises UsageError for what is wrong first.
    """
    if not isinstance(raw, Mapping):
        raise UsageError(f"`ranges` must map metrics to [least, largest], not {quote(raw)}")
    found = {}
    for metric, ends in raw.items():
        if metric not in metrics:
            raise UsageError(f"`ranges`: the study does not measure {quote(metric)}{suggest(str(metric), metrics)}")
        if not isinstance(ends, list) or len(ends) != 2 or not all(map(_is_number, ends)) or not ends[0] < ends[1]:
            raise UsageError(f"`ranges` of {metric} must be [least, largest], two numbers, not {quote(ends)}")
        found[str(metric)] = (float(ends[0]), float(ends[1]))
    return found


def parse_must_beat(raw: object, metrics: Collection[str]) -> dict[str, dict[str, float]]:
    """The numbers of `must_beat: {val/loss: {a trigram counter: 1.664}}`: metric → name → number.

    None is no number. Raises UsageError for what is wrong first.
    """
    if raw is None:
        return {}
    if not isinstance(raw, Mapping):
        raise UsageError(f"`must_beat` must map metrics to {{NAME: number}}, not {quote(raw)}")
    for metric, numbers in raw.items():
        if metric not in metrics:
            raise UsageError(f"`must_beat`: the study does not measure {quote(metric)}{suggest(str(metric), metrics)}")
        if not isinstance(numbers, Mapping) or not all(
            isinstance(name, str) and name.strip() and _is_number(value) for name, value in numbers.items()
        ):
            raise UsageError(f"`must_beat` of {metric} must map names to numbers, not {quote(numbers)}")
    return {metric: {name: float(value) for name, value in numbers.items()} for metric, numbers in raw.items()}


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _point(raw: Any, metric: str, source: str, arms: Collection[str], where: str) -> PublishedNumber:
    if not isinstance(raw, Mapping) or set(raw) not in ({"arm", "value"}, {"x", "value"}):
        raise UsageError(f"{where}: a point must have `value` and either `arm` or `x`, but is {quote(raw)}")
    for name in set(raw) - {"arm"}:
        if not _is_number(raw[name]):
            raise UsageError(f"{where}: `{name}` of a point must be a number, not {quote(raw[name])}")
    if "arm" in raw and raw["arm"] not in arms:
        raise UsageError(f"{where}: no arm {quote(raw['arm'])}{suggest(str(raw['arm']), arms)}")
    return PublishedNumber(metric, source, float(raw["value"]), raw.get("arm"), raw.get("x"))
