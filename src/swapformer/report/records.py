"""From trial folders to frames. What cannot be read is a status or a problem to show, never a number, never a crash."""

from __future__ import annotations

import fcntl
import json
import math
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pandas as pd

from swapformer.report.histories import read_history
from swapformer.report.manifest import Cell, Manifest, read_manifest
from swapformer.schema import upgraded

STATUSES = ("finished", "diverged", "failed", "interrupted", "killed", "running", "missing", "corrupt")
LARGEST = 1e150
"""Numbers from here on count as infinite: their squares overflow, and no interval can be given."""
_RECORDED = frozenset({"running", "finished", "diverged", "interrupted", "failed", "killed"})
_HEARTBEAT_SECONDS = 120.0

Place = tuple[str, str, int]
"""Condition, arm and seed."""

CELL_COLUMNS = (
    "condition", "arm", "seed", "trial", "status", "reason", "steps", "tokens", "seconds",
    "total", "non_position", "environment", "commit", "dirty", "data", "epoch",
)  # fmt: skip
METRIC_COLUMNS = ("condition", "arm", "seed", "trial", "metric", "value", "standard_error")
HISTORY_COLUMNS = ("condition", "arm", "seed", "status", "metric", "step", "value")


@dataclass(frozen=True)
class Records:
    """What a study's store holds.

    `cells`: one row per arm, seed and condition (`CELL_COLUMNS`), missing ones included; in a sequential study those of
    seeds that it came to. `metrics`: one row per finished cell and metric (`METRIC_COLUMNS`); only finished trials have
    values. `infinite`: metrics of finished trials that came to no finite number, by condition and arm. `histories`: the
    study's metrics during training, long (`HISTORY_COLUMNS`), for every trial that left any. `problems`: files that
    could not be read, in words. `probes`: what the probes of finished trials hold for figures, by condition, arm and
    seed, then by probe.
    """

    manifest: Manifest
    cells: pd.DataFrame
    metrics: pd.DataFrame
    histories: pd.DataFrame
    directions: Mapping[str, str]
    problems: tuple[str, ...]
    probes: Mapping[Place, Mapping[str, Any]] = field(default_factory=dict)
    infinite: frozenset[tuple[str, str, str]] = frozenset()

    def at(self, condition: str) -> Records:
        """What it holds of one condition of the grid."""
        cells, metrics, histories = (
            frame[frame["condition"] == condition].reset_index(drop=True)
            for frame in (self.cells, self.metrics, self.histories)
        )
        probes = {place: data for place, data in self.probes.items() if place[0] == condition}
        infinite = frozenset(place for place in self.infinite if place[0] == condition)
        return replace(
            self, manifest=self.manifest.at(condition), cells=cells, metrics=metrics, histories=histories,
            probes=probes, infinite=infinite,
        )  # fmt: skip

    def count(self, status: str, arm: str | None = None) -> int:
        """How many cells (of `arm`) have this status."""
        chosen = self.cells["status"] == status
        return int((chosen if arm is None else chosen & (self.cells["arm"] == arm)).sum())


@dataclass
class TrialFiles:
    """What a trial's folder holds; of a finished one `metrics`, those that are `infinite` (or nan), and `probes`."""

    status: str
    reason: str = ""
    record: Mapping[str, Any] = field(default_factory=dict)
    metrics: dict[str, float] = field(default_factory=dict)
    probes: dict[str, Any] = field(default_factory=dict)
    infinite: frozenset[str] = frozenset()


def read(study_dir: Path, runs_dir: Path) -> Records:
    """Read `study_dir/manifest.json` and the trials that it names under `runs_dir/trials`."""
    manifest = read_manifest(study_dir / "manifest.json")
    problems: list[str] = []
    cells, metrics, histories = [], [], []
    directions: dict[str, str] = {}
    probes: dict[Place, Mapping[str, Any]] = {}
    infinite: set[tuple[str, str, str]] = set()
    for cell in _all_cells(manifest):
        directory = runs_dir / "trials" / cell.trial
        trial = read_trial(directory, cell, problems) if cell.trial else TrialFiles("missing")
        cells.append(_cell_row(cell, trial))
        metrics += _metric_rows(cell, trial)
        infinite |= {(cell.condition, cell.arm, name) for name in trial.infinite}
        if trial.probes:
            probes[cell.condition, cell.arm, cell.seed] = trial.probes
        directions |= {k: v for k, v in _mapping(trial.record, "directions").items() if v in ("lower", "higher")}
        if trial.status != "missing":
            history = read_history(directory / "metrics.csv", manifest.metrics, problems)
            histories.append(
                history.assign(condition=cell.condition, arm=cell.arm, seed=cell.seed, status=trial.status)
            )
    return Records(
        manifest,
        pd.DataFrame(cells, columns=list(CELL_COLUMNS)),
        pd.DataFrame(metrics, columns=list(METRIC_COLUMNS)),
        _concatenate(histories),
        directions,
        tuple(problems),
        probes,
        frozenset(infinite),
    )


def _all_cells(manifest: Manifest) -> list[Cell]:
    """Every possible arm with every seed; a cell that the manifest does not name has no trial.

    A sequential study names the cells that it came to, and its first look's are expected at least.
    """
    seeds = manifest.seeds[: manifest.looks[0]] if manifest.looks else manifest.seeds
    expected = {
        (arm, seed, condition): Cell(arm, seed, "", condition)
        for condition in manifest.conditions
        for arm in manifest.at(condition).possible
        for seed in seeds
    }
    places = {(cell.arm, cell.condition) for cell in expected.values()}
    named = {(cell.arm, cell.seed, cell.condition): cell for cell in manifest.cells}
    return list((expected | {key: cell for key, cell in named.items() if (key[0], key[2]) in places}).values())


def read_trial(directory: Path, cell: Cell, problems: list[str]) -> TrialFiles:
    """Read a trial's record and artifacts; what cannot be read is added to `problems`."""
    path = directory / "record.json"
    try:
        record = _checked(json.loads(path.read_text(encoding="utf-8")), cell)
    except FileNotFoundError:
        return TrialFiles("running") if held(directory) else TrialFiles("missing")
    except (OSError, ValueError) as error:
        problems.append(f"{path}: {error}")
        return TrialFiles("corrupt", f"record.json cannot be read: {error}")
    status, reason = record["status"], str(record.get("reason") or "")
    if status == "running" and not held(directory, record):
        return TrialFiles("killed", "the record says running, but no process holds the trial", record)
    if status != "finished":
        return TrialFiles(status, reason, record)
    artifacts = _artifacts(directory / "artifacts", problems)
    values = _numbers(_mapping(record, "metrics"))
    for artifact in artifacts.values():
        values |= _numbers(_mapping(artifact, "metrics"))
    for name in _mapping(record, "metrics").keys() - values.keys():
        problems.append(f"{path}: the metric {name!r} is not a finite number")
    probes = {name: each.get("data") for name, each in artifacts.items()}
    infinite = frozenset(_mapping(record, "metrics").keys() | _mapping(record, "directions").keys()) - values.keys()
    return TrialFiles(status, reason, record, values, probes, infinite)


def _checked(found: Any, cell: Cell) -> dict[str, Any]:
    """The record as the current version has it."""
    if not isinstance(found, dict):
        raise ValueError(f"expected a mapping, found {type(found).__name__}")
    version = found.get("schema_version")
    record = upgraded(found, version if isinstance(version, int) else 0)
    if record.get("status") not in _RECORDED:
        raise ValueError(f"unknown status {record.get('status')!r}")
    if record.get("seed", cell.seed) != cell.seed:
        raise ValueError(f"it has seed {record['seed']!r}, but the study's cell has seed {cell.seed}")
    if record["status"] == "finished" and not isinstance(record.get("metrics"), dict):
        raise ValueError("a finished trial must hold `metrics`")
    return record


def held(directory: Path, record: Mapping[str, Any] | None = None) -> bool:
    """Whether a process holds the trial: its kernel lock, or (trial of another host) a heartbeat under two minutes old.

    The test takes a shared lock for an instant and gives it back; it never waits and changes nothing.
    """
    host = _mapping(record or {}, "machine").get("host")
    if host not in (None, socket.gethostname()):
        try:
            return time.time() - (directory / "heartbeat").stat().st_mtime < _HEARTBEAT_SECONDS
        except OSError:
            return False
    try:
        with (directory / "lock").open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
            fcntl.flock(lock, fcntl.LOCK_UN)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def environment_class(record: Mapping[str, Any]) -> str:
    """Device type and number, torch version, threads and determinism, in words: only equal ones may be compared."""
    environment = _mapping(record, "environment")
    if not environment:
        return "unknown"
    threads = environment.get("threads", "?")
    several = f"{environment['devices']} × " if "devices" in environment else ""
    shared = f" · {environment['strategy']}" if "strategy" in environment else ""
    return (
        f"{several}{environment.get('device', '?')}{shared} · torch {environment.get('torch', '?')} · "
        f"{threads} thread{'' if threads == 1 else 's'} · "
        f"{'deterministic' if environment.get('deterministic') else 'not deterministic'}"
    )


def _artifacts(directory: Path, problems: list[str]) -> dict[str, dict[str, Any]]:
    """What probes left, by name."""
    found: dict[str, dict[str, Any]] = {}
    for path in sorted(directory.glob("*.json")):
        try:
            artifact = json.loads(path.read_text(encoding="utf-8"))
            if not isinstance(artifact, dict):
                raise ValueError(f"expected a mapping, found {type(artifact).__name__}")
        except (OSError, ValueError) as error:
            problems.append(f"{path}: {error}")
            continue
        found[path.stem] = artifact
    return found


def _cell_row(cell: Cell, trial: TrialFiles) -> tuple[Any, ...]:
    record, parameters, git = trial.record, _mapping(trial.record, "parameters"), _mapping(trial.record, "git")
    return (
        cell.condition, cell.arm, cell.seed, cell.trial, trial.status, trial.reason,
        _number(record.get("steps")), _number(record.get("tokens")), _number(record.get("seconds")),
        _number(parameters.get("total")), _number(parameters.get("non_position")),
        environment_class(record) if record else "", str(git.get("commit") or ""), bool(git.get("dirty")),
        str(_mapping(record, "data").get("fingerprint") or ""), str(record.get("results_epoch", "")),
    )  # fmt: skip


def _metric_rows(cell: Cell, trial: TrialFiles) -> list[tuple[Any, ...]]:
    errors = _numbers(_mapping(trial.record, "standard_errors"))
    return [
        (cell.condition, cell.arm, cell.seed, cell.trial, name, value, errors.get(name, math.nan))
        for name, value in trial.metrics.items()
    ]


def _mapping(record: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = record.get(key)
    return value if isinstance(value, dict) else {}


def _number(value: Any) -> float:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else math.nan


def _numbers(values: Mapping[str, Any]) -> dict[str, float]:
    return {name: _number(value) for name, value in values.items() if abs(_number(value)) < LARGEST}


def _concatenate(histories: list[pd.DataFrame]) -> pd.DataFrame:
    filled = [history for history in histories if len(history)]
    if not filled:
        return pd.DataFrame({name: [] for name in HISTORY_COLUMNS})
    return pd.concat(filled, ignore_index=True)[list(HISTORY_COLUMNS)]
