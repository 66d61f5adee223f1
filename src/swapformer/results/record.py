"""The record of a trial, `record.json`: its status, results and origin, in every version that was ever written."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

from swapformer.errors import UsageError, quote
from swapformer.results.files import CorruptFile, read_file, write_atomic
from swapformer.results.schema import from_json, parse_json

SCHEMA_VERSION = 2
"""The version that is written. Raised, with a step in `_migrated`, when a field gets another meaning or position."""

RUNNING = "running"
FINISHED = "finished"
DIVERGED = "diverged"
INTERRUPTED = "interrupted"
FAILED = "failed"
KILLED = "killed"
STATUSES = (RUNNING, FINISHED, DIVERGED, INTERRUPTED, FAILED, KILLED)
FINAL = (FINISHED, DIVERGED)
"""Statuses that are results: such a trial is never run again."""
MISSING = "missing"
"""The status of a trial that has no record."""
CORRUPT = "corrupt"
"""The status of a trial whose record cannot be read."""
NO_HOLDER = "the record says running, but no process holds the trial"
_ATTEMPT = "attempt "
"""Why a trial counts as killed."""


@dataclass(frozen=True)
class Record:
    """The state of one trial; `record.json` holds exactly these fields.

    Attributes:
        metrics: final values, e.g. `val/loss`; finite numbers only (what is not finite is left out).
        standard_errors: of some metrics, over the evaluation sequences.
        directions: which way each metric is better, `lower` or `higher`.
        evaluation: of each evaluation set, such as `val@64`, the number of its items and a hash of them; empty in
            records from before it was kept.
        exact: the metrics that no seed changes.
        baselines: of each loss, such as `val/loss`, that of `guessing` and that of `counting` only.
        environment: what two trials must share to be compared: device, torch, threads, deterministic; devices and
            strategy where there are several; hardware where times were measured.
        trainer: how it was computed, as its configuration says: devices and their strategy, precision, accumulation,
            gradient checkpointing, compilation.
        machine: where the newest attempt ran, and with which versions besides.
        seconds: time spent in all attempts together.
        attempts: how many times a process has started or resumed the trial.
        notes: what had to be worked around (a corrupt checkpoint set aside, a probe that failed), what else a reader of
            the result must know, and how earlier attempts ended.
    """

    id: str
    status: str
    reason: str | None = None
    seed: int | None = None
    metrics: dict[str, float] = field(default_factory=dict)
    standard_errors: dict[str, float] = field(default_factory=dict)
    directions: dict[str, str] = field(default_factory=dict)
    evaluation: dict[str, Any] = field(default_factory=dict)
    exact: tuple[str, ...] = ()
    baselines: dict[str, dict[str, float]] = field(default_factory=dict)
    steps: int = 0
    tokens: int = 0
    parameters: dict[str, int] = field(default_factory=dict)
    environment: dict[str, Any] = field(default_factory=dict)
    trainer: dict[str, Any] = field(default_factory=dict)
    machine: dict[str, Any] = field(default_factory=dict)
    git: dict[str, Any] = field(default_factory=dict)
    data: dict[str, Any] = field(default_factory=dict)
    command: str = ""
    started: str = ""
    ended: str | None = None
    seconds: float = 0.0
    attempts: int = 0
    results_epoch: int = 0
    notes: tuple[str, ...] = ()

    @property
    def final(self) -> bool:
        """Whether the trial has its result (finished or diverged)."""
        return self.status in FINAL

    @property
    def remarks(self) -> list[str]:
        """The notes that are about the result: how an attempt ended that was resumed does not change it."""
        return [note for note in self.notes if not note.startswith(_ATTEMPT)]

    def ended_attempt(self, status: str) -> str:
        """The note on how the newest attempt ended, for the record of the next."""
        return f"{_ATTEMPT}{self.attempts} {status}: {self.reason or NO_HOLDER}"

    @property
    def environment_class(self) -> str:
        """Device type, number and GPU, torch, threads, determinism, hardware of times: only equal ones are compared."""
        if not (known := self.environment):
            return "unknown"
        threads = known.get("threads", "?")
        several = f"{known['nodes']} nodes × " if "nodes" in known else ""
        several += f"{known['devices']} × " if "devices" in known else ""
        shared = f" · {known['strategy']}" if "strategy" in known else ""
        gpu = f" · {self.machine['gpu']} ({self.machine.get('capability', '?')})" if self.machine.get("gpu") else ""
        return (
            f"{several}{known.get('device', '?')}{gpu}{shared} · torch {known.get('torch', '?')} · "
            f"{threads} thread{'' if threads == 1 else 's'} · "
            f"{'deterministic' if known.get('deterministic') else 'not deterministic'}"
            f"{' · TF32' if known.get('tf32') else ''}"
            f"{' · ' + str(known['hardware']) if 'hardware' in known else ''}"
        )

    def but(self, **changes: Any) -> Self:
        """A copy with other values."""
        return replace(self, **changes)

    def to_json(self) -> str:
        """The text of `record.json`."""
        values = asdict(self) | {"metrics": finite(self.metrics), "standard_errors": finite(self.standard_errors)}
        content = {"schema_version": SCHEMA_VERSION, **values, "check": _sum_of_results(values)}
        return json.dumps(content, indent=1, allow_nan=False) + "\n"


def parse(text: bytes, trial: str) -> Record:
    """The record of the trial with id `trial` from the bytes of its `record.json`, of this version or an older one.

    Raises CorruptFile when the bytes are not a record of this trial, UsageError when a newer swapformer has written it.
    """
    values = parse_json(text)
    if not isinstance(values, dict) or not isinstance(version := values.pop("schema_version", None), int):
        raise CorruptFile("not a JSON object with a schema_version")
    if version > SCHEMA_VERSION:
        raise UsageError(
            f"the record of trial {trial} has schema version {version}, but this swapformer reads up to "
            f"{SCHEMA_VERSION}; update swapformer or choose another runs_dir"
        )
    check = values.pop("check", None)
    _require(
        check is None or check == _sum_of_results(values),
        "its results are not those that were written: some were changed since",
    )
    record = from_json(Record, values := _migrated(values, version))
    _require(record.id == trial, f"it belongs to trial {quote(record.id)}")
    _require(record.status in STATUSES, f"unknown status {quote(record.status)}")
    _require(record.status != FINISHED or "metrics" in values, "a finished trial must hold `metrics`")
    for name, value in record.metrics.items():
        _require(math.isfinite(value), f"`metrics` must hold finite numbers, but {quote(name)} is {value}")
    for name in _COUNTS:
        _require(0 <= (count := getattr(record, name)) < math.inf, f"`{name}` must be a count, but is {count}")
    return record


def record_path(folder: Path) -> Path:
    """The record of the trial in `folder`."""
    return folder / "record.json"


def read_record(folder: Path) -> Record | None:
    """The record of the trial in `folder` as it was last written; None when it has none.

    Raises as `parse` and `read_file` do.
    """
    try:
        return parse(read_file(record_path(folder)), folder.name)
    except FileNotFoundError:
        return None


def write_record(folder: Path, record: Record) -> None:
    """Store a record, atomically; only the holder of the trial's lock may call this."""
    write_atomic(record_path(folder), record.to_json())


def finite(values: Mapping[str, float]) -> dict[str, float]:
    """The finite ones among `values`."""
    return {name: float(value) for name, value in values.items() if math.isfinite(value)}


def now() -> str:
    """This moment, ISO 8601, UTC, to the millisecond."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


_RESULTS = ("status", "metrics", "standard_errors", "directions", "evaluation", "exact", "baselines")
"""The fields that the sum in a record is over: what verdicts are made of."""


def _sum_of_results(values: Mapping[str, Any]) -> str:
    """A hash of a record's results, by which a change by hand is noticed."""
    held = json.dumps([values.get(name) for name in _RESULTS], sort_keys=True)
    return hashlib.sha256(held.encode()).hexdigest()[:16]


_COUNTS = ("attempts", "seconds", "steps", "tokens")


def _require(holds: bool, wrong: str) -> None:
    if not holds:
        raise CorruptFile(wrong)


def _migrated(values: dict[str, Any], version: int) -> dict[str, Any]:
    """The fields of a record of an older `version` as the current one has them; `values` stays as it is.

    Raises CorruptFile for a version that never was, or whose fields are not what it says.
    """
    if not 1 <= version <= SCHEMA_VERSION:
        raise CorruptFile(f"schema_version is {version!r}, but this swapformer reads 1 to {SCHEMA_VERSION}")
    return _with_machine(values) if version == 1 else values


def _with_machine(values: dict[str, Any]) -> dict[str, Any]:
    """1 → 2: what two trials must share to be compared stands apart from the machine that they happened to run on."""
    environment = values.get("environment", {})
    if not isinstance(environment, dict):
        raise CorruptFile(f"`environment` must be a mapping, but is {quote(environment)}")
    shared = ("device", "torch", "threads", "deterministic")
    return {
        **values,
        "environment": {key: environment[key] for key in shared if key in environment},
        "machine": {key: value for key, value in environment.items() if key not in shared},
    }
