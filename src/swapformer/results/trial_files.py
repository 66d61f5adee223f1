"""What lies in the folder of one trial. What cannot be read is a status or a problem to show, never a crash."""

from __future__ import annotations

import fcntl
import json
import math
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from swapformer.results.manifest import Cell
from swapformer.results.schema import upgraded

LARGEST = 1e150
"""Numbers from here on count as infinite: their squares overflow, and no interval can be given."""
_RECORDED = frozenset({"running", "finished", "diverged", "interrupted", "failed", "killed"})
_HEARTBEAT_SECONDS = 120.0


@dataclass
class TrialFiles:
    """What a trial's folder holds; of a finished one `metrics`, those that are `infinite` (or nan), and `probes`."""

    status: str
    reason: str = ""
    record: Mapping[str, Any] = field(default_factory=dict)
    metrics: dict[str, float] = field(default_factory=dict)
    probes: dict[str, Any] = field(default_factory=dict)
    infinite: frozenset[str] = frozenset()


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
    values = numbers_of(mapping_of(record, "metrics"))
    for artifact in artifacts.values():
        values |= numbers_of(mapping_of(artifact, "metrics"))
    for name in mapping_of(record, "metrics").keys() - values.keys():
        problems.append(f"{path}: the metric {name!r} is not a finite number")
    probes = {name: each.get("data") for name, each in artifacts.items()}
    infinite = frozenset(mapping_of(record, "metrics").keys() | mapping_of(record, "directions").keys()) - values.keys()
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
    host = mapping_of(record or {}, "machine").get("host")
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
    environment = mapping_of(record, "environment")
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


def mapping_of(record: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """A field of a record that holds a mapping; an empty one where it does not."""
    value = record.get(key)
    return value if isinstance(value, dict) else {}


def number_of(value: Any) -> float:
    """A number of a record; nan where it is none."""
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else math.nan


def numbers_of(values: Mapping[str, Any]) -> dict[str, float]:
    """Those of some values that are finite numbers."""
    return {name: number_of(value) for name, value in values.items() if abs(number_of(value)) < LARGEST}
