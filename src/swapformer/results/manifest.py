"""A study's manifest, `manifest.json`: what was asked, and which trial answers each cell."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from swapformer.errors import UsageError, cut, quote
from swapformer.results.arms import (
    ArmCondition,
    ArmDifference,
    Cell,
    PublishedNumber,
    ShownFigure,
    Values,
    arm_fields,
)
from swapformer.results.artifacts import probe_keys
from swapformer.results.files import CorruptFile, quarantine, set_aside_stranger, write_atomic
from swapformer.results.ledger import Ledger
from swapformer.results.lock import wait_for_lock
from swapformer.results.schema import from_json, read_json
from swapformer.results.tuning import Tuning

SCHEMA_VERSION = 1


@dataclass(frozen=True)
class Axis:
    """The config key that the arms sweep, and each arm's value of it."""

    key: str
    values: Mapping[str, Any]


@dataclass(frozen=True)
class Manifest:
    """The facts that a report needs about a study, other than its trials.

    Attributes:
        arms: arm → its overrides.
        claims: as the study file spells them (see `swapformer.report.statistics.claims`).
        impossible_at: arms in conditions that could not be built, with the reason.
        axis: what tells the arms apart, where that is one key with a number of its own in each arm.
        longest_trained: the longest length in training.
        shared_config: the baseline's configuration, in the first condition and of the first seed.
        looks: the numbers of seeds at which a sequential study is to be judged.
        ledger: the looks that were taken.
        derive: name → how one number per trial is derived, as in the study file; `metrics` has these names too.
        exact: the metrics that are the same with every seed.
        published: numbers from papers, shown beside the study's own.
        figures: those that are published, as the study file lists them; a report's page has all.
        ranges: the least and the largest value that a metric can take, where the study file says so.
        must_beat: metric → name → number that the baseline must be better than, or no claim is judged.
        later_claims: whether half of the error waits for claims that are stated later.
        palette: the arms of all parts of an exercise, each of which has one colour in all of them; () for one study.
        conditions: of the grid, each with the values of its keys; one without a name where there is no grid.
        fairness: how each arm differs from the baseline.
        settings: the id of what an arm trains in a condition, whatever the seed; none of manifests from before.
        condition: the one that the manifest was narrowed to (`at`); None for all.
    """

    name: str
    baseline: str
    arms: Mapping[str, tuple[str, ...]]
    seeds: tuple[int, ...]
    metrics: tuple[str, ...]
    cells: tuple[Cell, ...]
    claims: tuple[Mapping[str, Any], ...] = ()
    impossible_at: Mapping[ArmCondition, str] = field(default_factory=dict)
    axis: Axis | None = None
    question: str = ""
    scale: str = ""
    command: str = ""
    commit: str = ""
    longest_trained: int | None = None
    shared_config: Mapping[str, Any] = field(default_factory=dict)
    looks: tuple[int, ...] = ()
    conditions: Mapping[str, Values] = field(default_factory=lambda: {"": {}})
    tuning: Tuning | None = None
    fairness: tuple[ArmDifference, ...] = ()
    condition: str | None = None
    ledger: Ledger = field(default_factory=Ledger)
    derive: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    exact: tuple[str, ...] = ()
    settings: Mapping[ArmCondition, str] = field(default_factory=dict)
    published: tuple[PublishedNumber, ...] = ()
    figures: tuple[ShownFigure, ...] = ()
    palette: tuple[str, ...] = ()
    ranges: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    must_beat: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    later_claims: bool = False

    def at(self, condition: str) -> Manifest:
        """The study as it is in one condition."""
        return replace(self, condition=condition)

    @property
    def impossible(self) -> dict[str, str]:
        """Arms that could not be built, with the reason: in the condition that this was narrowed to, or in all."""
        where = self.conditions if self.condition is None else (self.condition,)
        return {
            arm: reason
            for (arm, condition), reason in self.impossible_at.items()
            if condition in where and all((arm, each) in self.impossible_at for each in where)
        }

    @property
    def possible(self) -> tuple[str, ...]:
        """The arms that could be built, in the study's order."""
        impossible = self.impossible
        return tuple(arm for arm in self.arms if arm not in impossible)

    def to_json(self) -> str:
        """The text of `manifest.json`."""
        settings = [{**arm_fields(*where), "id": found} for where, found in self.settings.items()]
        content = {
            "schema_version": SCHEMA_VERSION,
            "name": self.name,
            "scale": self.scale,
            "question": self.question,
            "baseline": self.baseline,
            "metrics": self.metrics,
            "arms": self.arms,
            "axis": self.axis and {"key": self.axis.key, "values": self.axis.values},
            "seeds": self.seeds,
            "claims": self.claims,
            "looks": self.looks,
            "conditions": {name: values for name, values in self.conditions.items() if name},
            "cells": [cell.to_json() for cell in self.cells],
            "impossible": [{**arm_fields(*where), "reason": reason} for where, reason in self.impossible_at.items()],
            "tuning": self.tuning and self.tuning.to_json(),
            "fairness": [each.to_json() for each in self.fairness],
            "command": self.command,
            "commit": self.commit or None,
            "longest_trained": self.longest_trained,
            "shared_config": self.shared_config,
            "ledger": self.ledger.to_json(),
            **({"derive": self.derive} if self.derive else {}),
            **({"exact": self.exact} if self.exact else {}),
            **({"settings": settings} if settings else {}),
            **({"published": [vars(each) for each in self.published]} if self.published else {}),
            **({"figures": [vars(each) for each in self.figures]} if self.figures else {}),
            **({"palette": self.palette} if self.palette else {}),
            **({"ranges": self.ranges} if self.ranges else {}),
            **({"must_beat": self.must_beat} if self.must_beat else {}),
            **({"later_claims": True} if self.later_claims else {}),
        }
        return json.dumps(content, indent=1) + "\n"

    def asks_as(self, other: Manifest) -> bool:
        """Whether a report of either is the same, but for the command, the store and the looks that were taken."""

        def asked(manifest: Manifest) -> str:
            config = {**manifest.shared_config, "runs_dir": ""}
            return replace(manifest, command="", commit="", ledger=Ledger(), shared_config=config).to_json()

        return asked(self) == asked(other)


REPORT, PAGE = "report", "report.html"
"""The folder of a study's report, and its page in it."""


def manifest_path(study: Path) -> Path:
    """The manifest of the study in the folder `study`."""
    return study / "manifest.json"


def page_path(study: Path) -> Path:
    """The page of the study in the folder `study`, where it has been drawn."""
    return study / REPORT / PAGE


def place_of(study: Path) -> tuple[Path, str]:
    """The store that the study in a folder lies in, and its name there, which has two words where it is a part."""
    words = 1 + min(read_manifest(study).name.count("/"), 1)
    return study.parents[words], "/".join(study.parts[-words:])


def write_manifest(study: Path, manifest: Manifest) -> None:
    """Put the manifest into the study's folder, which is made, atomically; the ledger that stands there is kept."""
    with _locked(study):
        write_atomic(manifest_path(study), replace(manifest, ledger=_stored_ledger(study)).to_json())


def update_ledger(study: Path, update: Callable[[Ledger], Ledger]) -> Ledger:
    """Replace the ledger in the study's manifest by its `update`, while no other process does, and return it."""
    with _locked(study):
        before = _stored_ledger(study)
        after = update(before)
        raw = _read_raw(study)
        content = after.to_json()
        if raw.get("ledger") != content and after != Ledger():
            write_atomic(manifest_path(study), json.dumps({**raw, "ledger": content}, indent=1) + "\n")
    return after


@contextmanager
def _locked(study: Path) -> Iterator[None]:
    set_aside_stranger(study, folder=True)
    study.mkdir(parents=True, exist_ok=True)
    with wait_for_lock(study / "manifest.lock"):
        yield


def _stored_ledger(study: Path) -> Ledger:
    """The ledger in the study's folder. A manifest that cannot be read is set aside: what it held is not known.

    One of a newer swapformer is refused: its looks count.

    A part begins with the looks of the study that its exercise was before it had parts, if one was run here.
    """
    begun = manifest_path(study).exists() or (study / REPORT).exists()
    place = study if begun or not manifest_path(study.parent).is_file() else study.parent
    judged = (place / REPORT).exists()
    try:
        raw = _read_raw(place)
    except NewerManifest:
        raise
    except UsageError:
        if manifest_path(study).is_file():
            quarantine(manifest_path(study))
            return Ledger(unknown="a manifest.json that could not be read was set aside")
        return Ledger(unknown="a report was drawn, but its manifest.json is gone") if judged else Ledger()
    if "ledger" in raw:
        return Ledger.from_json(raw["ledger"])
    return Ledger(unknown="a report was drawn before looks were counted") if judged else Ledger()


def read_manifest(study: Path) -> Manifest:
    """Read and check the manifest of the study in the folder `study`.

    Raises `UsageError` where there is none, where it is not JSON, or where a field is missing or of the wrong shape.
    """
    raw = _read_raw(study)
    try:
        return _build(raw)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        wrong = f"it lacks {error}" if isinstance(error, KeyError) else cut(error, 120)
        raise UsageError(
            f"the study's manifest {manifest_path(study)} cannot be read: {wrong}; {_redo(study)}"
        ) from None


def _redo(study: Path) -> str:
    return f"run {_command(study)} to write it again"


def _command(study: Path) -> str:
    exercise = f"{study.parent.name}/" if study.parent.parent.name == "studies" else ""
    return f"`swapformer study {exercise}{study.name}`"


class NewerManifest(UsageError):
    """A manifest that a newer swapformer has written."""


def _read_raw(study: Path) -> dict[str, Any]:
    path, redo = manifest_path(study), _redo(study)
    try:
        raw = read_json(path)
    except FileNotFoundError:
        raise UsageError(f"a report needs the study's manifest, but {path} does not exist; {redo}") from None
    except CorruptFile as error:
        raise UsageError(f"the study's manifest {path} cannot be read ({cut(error, 60)}); {redo}") from None
    if not isinstance(raw, dict):
        raise UsageError(f"the study's manifest {path} must be a mapping, but is {type(raw).__name__}; {redo}")
    version = raw.get("schema_version", SCHEMA_VERSION)
    if isinstance(version, int) and version > SCHEMA_VERSION:
        raise NewerManifest(
            f"the study's manifest {path} is of a newer swapformer (schema_version {version}, this one reads "
            f"{SCHEMA_VERSION}); use that one, or {_command(study)} with another runs_dir"
        )
    if version != SCHEMA_VERSION:
        raise UsageError(
            f"the study's manifest {path} has schema_version {cut(quote(version), 60)}, "
            f"but this swapformer reads {SCHEMA_VERSION}; {redo}"
        )
    return raw


_OWN = ("impossible", "settings", "fairness", "tuning", "ledger")
"""Fields that are stored in another shape than they have here."""


def _build(raw: Mapping[str, Any]) -> Manifest:
    found = from_json(Manifest, {key: value for key, value in raw.items() if value is not None and key not in _OWN})
    manifest = replace(
        found,
        cells=tuple(_with_probes(cell, found.shared_config) for cell in found.cells),
        conditions=found.conditions or {"": {}},
        impossible_at={
            (str(entry["arm"]), str(entry.get("condition", ""))): str(entry["reason"])
            for entry in raw.get("impossible") or ()
        },
        tuning=Tuning.from_json(raw["tuning"]) if raw.get("tuning") else None,
        fairness=tuple(map(ArmDifference.from_json, raw.get("fairness") or ())),
        settings={
            (str(each["arm"]), str(each.get("condition", ""))): str(each["id"]) for each in raw.get("settings") or ()
        },
        ledger=Ledger.from_json(raw["ledger"]) if "ledger" in raw else Ledger(),
    )
    alone = [arm for arm in manifest.impossible if arm not in manifest.arms]  # it may stand in `impossible` only
    manifest = replace(manifest, arms={**manifest.arms, **dict.fromkeys(alone, ())})
    known = set(manifest.arms)
    strangers = {cell.arm for cell in manifest.cells} - known
    if strangers:
        raise ValueError(f"cells name arms that are not in `arms`: {', '.join(sorted(strangers))}")
    if manifest.baseline not in known:
        raise ValueError(f"the baseline {manifest.baseline!r} is not in `arms`")
    return manifest


def _with_probes(cell: Cell, shared_config: Mapping[str, Any]) -> Cell:
    """A cell; one that does not say which probes are asked of it has those of the baseline, where they are known."""
    known = cell.probes is None and "probes" in shared_config
    return replace(cell, probes=probe_keys(shared_config)) if known else cell
