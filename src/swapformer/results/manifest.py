"""The study's manifest: what was asked, and which trial answers each cell."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from swapformer.errors import UsageError
from swapformer.results.fairness_summary import Fairness, Tuning, Values, parse_conditions, parse_fairness, parse_tuning

SCHEMA_VERSION = 1
T = TypeVar("T")


@dataclass(frozen=True)
class Axis:
    """The config key that the arms sweep, and each arm's value of it."""

    key: str
    values: Mapping[str, Any]


@dataclass(frozen=True)
class Cell:
    """One arm with one seed in a condition of the grid, and the id of the trial that answers it."""

    arm: str
    seed: int
    trial: str
    condition: str = ""


@dataclass(frozen=True)
class Manifest:
    """`manifest.json` as written by the study room; `claims` are still plain mappings (see `claims.parse`).

    `conditions`: the cells of the grid (one without a name where there is none). `impossible`: arms that could not be
    built, in all conditions or in the one that the manifest was narrowed to (`at`). `looks`: the numbers of seeds at
    which a sequential study is judged.
    """

    name: str
    baseline: str
    arms: Mapping[str, tuple[str, ...]]
    seeds: tuple[int, ...]
    metrics: tuple[str, ...]
    cells: tuple[Cell, ...]
    claims: tuple[Mapping[str, Any], ...]
    impossible: Mapping[str, str]
    axis: Axis | None
    question: str
    scale: str
    command: str
    commit: str
    longest_trained: int | None
    shared_config: Mapping[str, Any]
    looks: tuple[int, ...] = ()
    conditions: Mapping[str, Values] = field(default_factory=lambda: {"": {}})
    impossible_at: Mapping[tuple[str, str], str] = field(default_factory=dict)
    tuning: Tuning | None = None
    fairness: tuple[Fairness, ...] = ()

    def at(self, condition: str) -> Manifest:
        """The study as it is in one condition."""
        there = {arm: reason for (arm, where), reason in self.impossible_at.items() if where == condition}
        return replace(self, impossible=there)

    @property
    def possible(self) -> tuple[str, ...]:
        """The arms that could be built, in the study's order."""
        return tuple(arm for arm in self.arms if arm not in self.impossible)


def read_manifest(path: Path) -> Manifest:
    """Read and check `manifest.json`.

    Raises `UsageError` where there is none, where it is not JSON, or where a field is missing or of the wrong shape.
    """
    redo = f"run `swapformer study {path.parent.name}` to write it again"
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UsageError(f"a report needs the study's manifest, but {path} does not exist; {redo}") from None
    except (OSError, ValueError) as error:
        raise UsageError(f"the study's manifest {path} cannot be read ({error}); {redo}") from None
    if not isinstance(raw, dict):
        raise UsageError(f"the study's manifest {path} must be a mapping, but is {type(raw).__name__}; {redo}")
    version = raw.get("schema_version", SCHEMA_VERSION)
    if version != SCHEMA_VERSION:
        raise UsageError(
            f"the study's manifest {path} has schema_version {version!r}, "
            f"but this swapformer reads {SCHEMA_VERSION}; {redo}"
        )
    try:
        return _build(raw)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        wrong = f"lacks {error}" if isinstance(error, KeyError) else f"has a field of the wrong shape ({error})"
        raise UsageError(f"the study's manifest {path} {wrong}; {redo}") from None


def _build(raw: Mapping[str, Any]) -> Manifest:
    axis = raw.get("axis")
    conditions = parse_conditions(raw.get("conditions") or {})
    reasons = {
        (str(entry["arm"]), str(entry.get("condition", ""))): str(entry["reason"])
        for entry in raw.get("impossible") or ()
    }
    impossible = {
        arm: reason for (arm, _), reason in reasons.items() if all((arm, place) in reasons for place in conditions)
    }
    manifest = Manifest(
        name=str(raw["name"]),
        baseline=str(raw["baseline"]),
        arms=_arms(raw["arms"], impossible),
        seeds=_each(raw["seeds"], int),
        metrics=_each(raw["metrics"], str),
        cells=_each(raw["cells"], _cell),
        claims=_each(raw.get("claims") or (), dict),
        impossible=impossible,
        axis=Axis(str(axis["key"]), {str(a): v for a, v in axis["values"].items()}) if axis else None,
        question=str(raw.get("question") or ""),
        scale=str(raw.get("scale") or ""),
        command=str(raw.get("command") or ""),
        commit=str(raw.get("commit") or ""),
        longest_trained=int(raw["longest_trained"]) if raw.get("longest_trained") else None,
        shared_config=dict(raw.get("shared_config") or {}),
        looks=_each(raw.get("looks") or (), int),
        conditions=conditions,
        impossible_at=reasons,
        tuning=parse_tuning(raw.get("tuning")),
        fairness=_each(raw.get("fairness") or (), parse_fairness),
    )
    known = set(manifest.arms)
    strangers = {cell.arm for cell in manifest.cells} - known
    if strangers:
        raise ValueError(f"cells name arms that are not in `arms`: {', '.join(sorted(strangers))}")
    if manifest.baseline not in known:
        raise ValueError(f"the baseline {manifest.baseline!r} is not in `arms`")
    return manifest


def _cell(raw: Mapping[str, Any]) -> Cell:
    return Cell(str(raw["arm"]), int(raw["seed"]), str(raw["trial"]), str(raw.get("condition", "")))


def _arms(arms: Mapping[str, Any], impossible: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    known = {str(arm): _each(overrides or (), str) for arm, overrides in arms.items()}
    return known | {arm: () for arm in impossible if arm not in known}  # it may stand in `impossible` alone


def _each(values: Any, convert: Callable[[Any], T]) -> tuple[T, ...]:
    if not isinstance(values, list | tuple):
        raise TypeError(f"expected a list, got {type(values).__name__}")
    return tuple(convert(value) for value in values)
