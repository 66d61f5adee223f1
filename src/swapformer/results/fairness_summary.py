"""What a study did to be fair, as its manifest tells: conditions, tuning, matching, and how each arm differs."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

Values = Mapping[str, str]
"""Key → value, in the words of overrides."""
UNITS = {"params": "parameters", "flops": "FLOP of a training sequence", "kv_bytes": "bytes of KV cache of a sequence"}
"""What arms can be made to agree in."""


@dataclass(frozen=True)
class Tried:
    """A setting that an arm was tried with, and the trials of it, one for each tuning seed."""

    arm: str
    condition: str
    values: Values
    trials: tuple[str, ...]


@dataclass(frozen=True)
class Chosen:
    """The setting that an arm is reported with; `edges`: the keys in which it lies at the edge of what was tried;
    `diverged`: every trial of every setting did."""

    arm: str
    condition: str
    values: Values
    edges: tuple[str, ...]
    diverged: bool = False


@dataclass(frozen=True)
class Refused:
    """A setting that an arm cannot have."""

    arm: str
    condition: str
    values: Values
    reason: str


@dataclass(frozen=True)
class Tuning:
    """How settings were chosen: by the mean of `metric` over the trials of `seeds`, which are not reported."""

    metric: str
    keys: tuple[str, ...]
    seeds: tuple[int, ...]
    tried: tuple[Tried, ...]
    chosen: tuple[Chosen, ...]
    refused: tuple[Refused, ...]


@dataclass(frozen=True)
class Match:
    """The size that was solved so that an arm costs what the baseline does; `value` is None where it already did."""

    measure: str
    key: str
    value: float | None
    cost: int
    target: int

    @property
    def mismatch(self) -> float:
        """How much more than the baseline it costs, as a fraction."""
        return self.cost / self.target - 1


@dataclass(frozen=True)
class Shape:
    """A parameter whose shape is another than the baseline's (None: it has none), in `count` layers."""

    name: str
    before: tuple[int, ...] | None
    after: tuple[int, ...] | None
    count: int


@dataclass(frozen=True)
class Fairness:
    """How an arm differs from the baseline: `changes` as (leaf, before, after), those `beyond` its axis, `shapes`;
    `flops` of its whole training, nan where they cannot be counted."""

    arm: str
    condition: str
    changes: tuple[tuple[str, str, str], ...]
    beyond: tuple[str, ...]
    shapes: tuple[Shape, ...]
    flops: float
    match: Match | None


def shown(value: object) -> str:
    """A leaf's value in words; of a class its name."""
    if isinstance(value, str):
        return value.rpartition(".")[2] if re.fullmatch(r"[\w.]+\.[A-Z]\w*", value) else value
    return json.dumps(value)


def parse_tuning(raw: Mapping[str, Any] | None) -> Tuning | None:
    """The manifest's `tuning`."""
    if raw is None:
        return None
    return Tuning(
        str(raw["metric"]),
        tuple(map(str, raw["keys"])),
        tuple(map(int, raw["seeds"])),
        tuple(Tried(*_place(each), tuple(map(str, each["trials"]))) for each in raw["tried"]),
        tuple(
            Chosen(*_place(each), tuple(map(str, each["edges"])), bool(each.get("diverged"))) for each in raw["chosen"]
        ),
        tuple(Refused(*_place(each), str(each["reason"])) for each in raw["refused"]),
    )


def parse_fairness(raw: Mapping[str, Any]) -> Fairness:
    """One entry of the manifest's `fairness`."""
    match = raw["match"]
    return Fairness(
        str(raw["arm"]),
        str(raw["condition"]),
        tuple((str(key), str(before), str(after)) for key, before, after in raw["changes"]),
        tuple(map(str, raw["beyond"])),
        tuple(Shape(str(name), _sizes(before), _sizes(after), int(n)) for name, before, after, n in raw["shapes"]),
        math.nan if raw["flops"] is None else float(raw["flops"]),
        None if match is None else Match(**match),
    )


def parse_conditions(raw: Mapping[str, Any]) -> dict[str, Values]:
    """The manifest's `conditions`; one without a name where there is no grid."""
    return {str(name): _words(values) for name, values in raw.items()} or {"": {}}


def _place(raw: Mapping[str, Any]) -> tuple[str, str, Values]:
    return str(raw["arm"]), str(raw.get("condition", "")), _words(raw["values"])


def _words(raw: Mapping[str, Any]) -> Values:
    return {str(key): str(value) for key, value in raw.items()}


def _sizes(raw: Any) -> tuple[int, ...] | None:
    return None if raw is None else tuple(map(int, raw))
