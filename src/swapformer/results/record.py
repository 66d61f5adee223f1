"""What a trial leaves behind: one JSON object, strict enough that a damaged one is noticed."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import UTC, datetime
from typing import Any, Self

from swapformer.errors import UsageError
from swapformer.results import schema

RUNNING = "running"
FINISHED = "finished"
DIVERGED = "diverged"
INTERRUPTED = "interrupted"
FAILED = "failed"
KILLED = "killed"
STATUSES = (RUNNING, FINISHED, DIVERGED, INTERRUPTED, FAILED, KILLED)
FINAL = (FINISHED, DIVERGED)
"""Statuses that are results: such a trial is never run again."""


class CorruptRecord(ValueError):
    """The text is no record: truncated, garbage, or another trial's."""


@dataclass(frozen=True)
class Record:
    """The state of one trial; `record.json` holds exactly these fields.

    Attributes:
        metrics: final values, e.g. `val/loss`; finite numbers only (what is not finite is left out).
        standard_errors: of some metrics, over the evaluation sequences.
        directions: which way each metric is better, `lower` or `higher`.
        environment: what two trials must share to be compared: device, torch, threads, deterministic; devices and
            strategy where there are several.
        trainer: how it was computed, as its configuration says: devices and their strategy, precision, accumulation,
            gradient checkpointing, compilation.
        machine: where the newest attempt ran, and with which versions besides.
        seconds: time spent in all attempts together.
        attempts: how many times a process has started or resumed the trial.
        notes: what had to be worked around (a corrupt checkpoint set aside, a probe that failed).
    """

    id: str
    status: str
    reason: str | None = None
    seed: int | None = None
    metrics: dict[str, float] = field(default_factory=dict)
    standard_errors: dict[str, float] = field(default_factory=dict)
    directions: dict[str, str] = field(default_factory=dict)
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

    def but(self, **changes: Any) -> Self:
        """A copy with other values."""
        return replace(self, **changes)

    def to_json(self) -> str:
        """The text of `record.json`."""
        values = asdict(self) | {"metrics": finite(self.metrics), "standard_errors": finite(self.standard_errors)}
        return json.dumps({"schema_version": schema.RECORD_VERSION, **values}, indent=1, allow_nan=False) + "\n"


def parse(text: bytes, trial: str) -> Record:
    """The record of the trial with id `trial` from the bytes of its `record.json`, of this version or an older one.

    Raises:
        CorruptRecord: when the bytes are not a record of this trial.
        UsageError: when a newer swapformer has written it.
    """
    try:
        values = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise CorruptRecord(f"not JSON ({error})") from None
    if not isinstance(values, dict) or not isinstance(version := values.pop("schema_version", None), int):
        raise CorruptRecord("not a JSON object with a schema_version")
    if version > schema.RECORD_VERSION:
        raise UsageError(
            f"the record of trial {trial} has schema version {version}, but this swapformer reads up to "
            f"{schema.RECORD_VERSION}; update swapformer or choose another runs_dir"
        )
    try:
        values = schema.upgraded(values, version)
        record = Record(**{name: value for name, value in values.items() if name in _FIELDS})
    except (TypeError, ValueError) as error:
        raise CorruptRecord(str(error)) from None
    _require(record.id == trial, f"it belongs to trial {record.id!r}")
    _require(record.status in STATUSES, f"unknown status {record.status!r}")
    _require(_numbers(record.metrics) and _numbers(record.standard_errors), "a metric is not a number")
    _require(isinstance(record.notes, list | tuple) and isinstance(record.directions, dict), "fields of the wrong type")
    _require(_numbers({"attempts": record.attempts, "seconds": record.seconds, "steps": record.steps}), "no counts")
    return record.but(notes=tuple(record.notes))


def finite(values: Mapping[str, float]) -> dict[str, float]:
    """The finite ones among `values`."""
    return {name: float(value) for name, value in values.items() if math.isfinite(value)}


def now() -> str:
    """This moment, ISO 8601, UTC, to the millisecond."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


_FIELDS = frozenset(field.name for field in fields(Record))


def _numbers(values: object) -> bool:
    return isinstance(values, dict) and all(
        isinstance(value, int | float) and not isinstance(value, bool) for value in values.values()
    )


def _require(holds: bool, complaint: str) -> None:
    if not holds:
        raise CorruptRecord(complaint)
