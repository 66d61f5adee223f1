"""Arms, conditions and cells of a study as its manifest names them, and how each arm differs from the baseline."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

ArmCondition = tuple[str, str]
"""An arm in a condition of the grid; the condition has no name where there is no grid."""
Values = Mapping[str, str]
"""Key → value, in the words of overrides."""

RUNG = "rung"
"""The key of a ladder's sizes among the values of a condition."""

Measure = Literal["params", "flops", "kv_bytes", "pairs"]
"""A cost that arms can be made to agree in."""
UNITS: Mapping[Measure, str] = {
    "params": "parameters",
    "flops": "FLOP",
    "kv_bytes": "bytes of KV cache",
    "pairs": "attended pairs",
}
"""What each measure counts."""
_COUNTED_OF: Mapping[Measure, str] = {
    "params": "",
    "flops": " of a training sequence",
    "kv_bytes": " of a sequence",
    "pairs": " of a training sequence",
}
UNITS_IN_FULL: Mapping[str, str] = {measure: unit + _COUNTED_OF[measure] for measure, unit in UNITS.items()}
"""What each measure counts, and of what."""


_COMPUTATION = re.compile(
    r"trainer\.(?!gradient_clip_)|optim\.(fused|foreach|capturable)$|model\.(encoder\.)?(layers\.\d+\.)?kernel(\.|$)"
)


def is_computation(leaf: str) -> bool:
    """Whether a leaf of a configuration says how a trial is computed, which arms may compare: device, kernel …"""
    return _COMPUTATION.match(leaf) is not None


def is_timed(metric: str) -> bool:
    """Whether a metric depends on the machine: seconds, and what follows from them."""
    return metric.startswith(("time/", "decode/"))


def arm_name(arm: str, condition: str = "") -> str:
    """`h4 with size=nano`; the arm alone where there is no grid."""
    return f"{arm} with {condition}" if condition else arm


def arm_fields(arm: str, condition: str) -> dict[str, str]:
    """An arm, and its condition where there is a grid, as the fields of a JSON object."""
    return {"arm": arm, "condition": condition} if condition else {"arm": arm}


@dataclass(frozen=True)
class PublishedNumber:
    """A number from a paper that stands in figures of a metric: of an arm, or at an `x` of the metric's own axis.

    That axis is the swept one, or the evaluation length where the arms have no number each.
    """

    metric: str
    source: str
    value: float
    arm: str | None = None
    x: float | None = None


@dataclass(frozen=True)
class ShownFigure:
    """A figure that is published: its file's name without suffix, and what it says instead of the report's words.

    `x`, `y`: labels of its axes. `lines`: text → value of a level drawn across it, such as the loss of a counter.
    """

    name: str
    caption: str = ""
    x: str = ""
    y: str = ""
    lines: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Cell:
    """One arm with one seed in a condition of the grid, and the id of the trial that answers it.

    `probes`: probe → the key of the settings that the study asks it with; None where an older manifest does not say.
    """

    arm: str
    seed: int
    trial: str
    condition: str = ""
    probes: Mapping[str, str] | None = field(default=None, hash=False)

    def to_json(self) -> dict[str, Any]:
        """As the manifest has it."""
        cell = {**arm_fields(self.arm, self.condition), "seed": self.seed, "trial": self.trial}
        return cell if self.probes is None else {**cell, "probes": self.probes}


@dataclass(frozen=True)
class MatchedSize:
    """The size that was solved so that an arm costs what the baseline does; `value` is None where it already did."""

    measure: Measure
    key: str
    value: int | float | None
    cost: int
    target: int

    @property
    def mismatch(self) -> float:
        """The extra cost over the baseline, as a fraction."""
        return self.cost / self.target - 1

    @property
    def override(self) -> tuple[str, ...]:
        """The override that sets the size."""
        return () if self.value is None else (f"{self.key}={self.value}",)

    @property
    def text(self) -> str:
        """`model.ffn.width=171 gives 49 999 parameters, +0.02 % of the baseline's 49 989`."""
        gives = "as it is, it has" if self.value is None else f"{self.key}={self.value} gives"
        share = f"{100 * self.mismatch:+.2g} %" if self.mismatch else "exactly"
        return f"{gives} {self.cost:,} {UNITS[self.measure]}, {share} the baseline's {self.target:,}"


@dataclass(frozen=True)
class Shape:
    """A parameter whose shape is another than the baseline's (None: it has none), in `count` layers."""

    name: str
    before: tuple[int, ...] | None
    after: tuple[int, ...] | None
    count: int


@dataclass(frozen=True)
class ArmDifference:
    """The differences of an arm to the baseline.

    `changes`: (leaf, the baseline's value, the arm's), in words; `beyond`: those of the leaves that the arm's axis does
    not say. `flops`: of its whole training, nan where they cannot be counted. `match`: the size that was solved, where
    costs are matched. `pairs`: of query and key that a training sequence attends, None where that is not known.
    """

    arm: str
    condition: str
    changes: tuple[tuple[str, str, str], ...]
    beyond: tuple[str, ...]
    shapes: tuple[Shape, ...]
    flops: float
    match: MatchedSize | None
    pairs: int | None = None

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> ArmDifference:
        """One entry of the manifest's `fairness`."""
        match = raw["match"]
        return cls(
            str(raw["arm"]),
            str(raw["condition"]),
            tuple((str(key), str(before), str(after)) for key, before, after in raw["changes"]),
            tuple(map(str, raw["beyond"])),
            tuple(Shape(str(name), _sizes(before), _sizes(after), int(n)) for name, before, after, n in raw["shapes"]),
            math.nan if raw["flops"] is None else float(raw["flops"]),
            None if match is None else MatchedSize(**match),
            None if raw.get("pairs") is None else int(raw["pairs"]),
        )

    def to_json(self) -> dict[str, Any]:
        """As the manifest has it; JSON makes lists of the tuples."""
        return {
            "arm": self.arm,
            "condition": self.condition,
            "changes": self.changes,
            "beyond": self.beyond,
            "shapes": [(each.name, each.before, each.after, each.count) for each in self.shapes],
            "flops": None if math.isnan(self.flops) else self.flops,
            "match": None if self.match is None else asdict(self.match),
            **({} if self.pairs is None else {"pairs": self.pairs}),
        }


def value_text(value: object) -> str:
    """A leaf's value in words; of a class its name."""
    if isinstance(value, str):
        return value.rpartition(".")[2] if re.fullmatch(r"[\w.]+\.[A-Z]\w*", value) else value
    return json.dumps(value)


def _sizes(raw: Any) -> tuple[int, ...] | None:
    return None if raw is None else tuple(map(int, raw))
