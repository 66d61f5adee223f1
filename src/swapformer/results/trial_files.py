"""The content of the folder of one trial, and the trial's status: the one reader of the store, status and report."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from swapformer.errors import UsageError
from swapformer.results import record as records
from swapformer.results.arms import Cell
from swapformer.results.artifacts import Artifact, read_artifacts
from swapformer.results.files import CorruptFile, quarantine, set_aside_stranger
from swapformer.results.lock import is_locked
from swapformer.results.moments import INIT, at_moment, moment_text, place_of, split_moment
from swapformer.results.record import CORRUPT, Record, read_record, record_path
from swapformer.results.shapes import Profile, Shape

LARGEST = 1e150
"""Numbers from here on count as infinite: their squares overflow, and no interval can be given."""
FOLDERS = ("checkpoints", "artifacts")
FILES = (
    *("record.json", "config.yaml", "metrics.csv", "tokeniser.json", "log.txt", "heartbeat", "items.npz"),
    "checkpoints/last.ckpt",
)
"""What a trial's folder holds by fixed names."""


def current_record(folder: Path, locked: Callable[[Path], bool] = is_locked) -> Record | None:
    """The record of the trial in `folder`, where “running” without a process that holds the lock becomes “killed”.

    Raises as `read_record` does.
    """
    found = read_record(folder)
    if found is None or found.status != records.RUNNING or locked(folder):
        return found
    found = read_record(folder)  # it may have ended between the two looks
    if found is None or found.status != records.RUNNING:
        return found
    return found.but(status=records.KILLED, reason=found.reason or records.NO_HOLDER)


def status_of(folder: Path, record: Record | None, locked: Callable[[Path], bool] = is_locked) -> str:
    """The status in a trial's current record; without one “running” where a process holds the lock, else “missing”."""
    if record is not None:
        return record.status
    return records.RUNNING if locked(folder) else records.MISSING


def repair(folder: Path) -> list[str]:
    """Set aside what is damaged in a trial's folder, so that the trial can be run; what was, in words.

    Only the holder of the trial's lock may call this. Raises UsageError for a record that a newer swapformer has
    written, or that may not be read.
    """
    done = []
    for name in (*FOLDERS, *FILES):
        moved = set_aside_stranger(folder / name, folder=name in FOLDERS)
        if moved is not None:
            done.append(f"{name} is no {'folder' if name in FOLDERS else 'file'}: set aside as {moved.name}")
    for path in (folder / "artifacts").glob("*.json"):
        set_aside_stranger(path)
    try:
        read_record(folder)
    except CorruptFile as error:
        moved = quarantine(record_path(folder))
        done.append(f"its record is corrupt ({error}): set aside as {moved.name}")
    return done


@dataclass
class TrialFiles:
    """The content of a trial's folder; of a finished one `metrics`, those that are `infinite` (or nan) or `exact`, and
    `probes`.

    Of a diverged one `metrics` and `probes` are what was measured before it was trained, which is as good as any.
    `probes`: probe → the shapes that it found; `older`: the probes whose shapes an older version wrote in another form.
    """

    status: str
    reason: str = ""
    record: Record | None = None
    metrics: dict[str, float] = field(default_factory=dict)
    probes: dict[str, Mapping[str, Shape]] = field(default_factory=dict)
    infinite: frozenset[str] = frozenset()
    older: frozenset[str] = frozenset()
    exact: frozenset[str] = frozenset()


def read_trial(folder: Path, cell: Cell, problems: list[str]) -> TrialFiles:
    """Read a trial's record and artifacts; what cannot be read is a status, and is added to `problems`."""
    path = record_path(folder)
    try:
        record = current_record(folder)
        status = status_of(folder, record)
        if record is not None and record.seed not in (None, cell.seed):
            raise CorruptFile(f"it has seed {record.seed!r}, but the study's cell has seed {cell.seed}")
    except (CorruptFile, UsageError) as error:
        problems.append(f"{path}: {error}")
        return TrialFiles(CORRUPT, f"{path.name} cannot be read: {error}")
    if record is None or status not in records.FINAL:
        return TrialFiles(status, "" if record is None else record.reason or "", record)
    artifacts = read_artifacts(folder, problems, cell.probes)
    for name in (cell.probes or {}).keys() - artifacts.keys():
        probe, moment = split_moment(name)
        if isinstance(moment, int) and (moment <= record.steps or status == records.FINISHED):
            problems.append(f"{folder}: the probe {probe} has nothing {moment_text(moment)}, and the training is over")
    if status == records.DIVERGED:
        artifacts = {name: each for name, each in artifacts.items() if split_moment(name)[1] == INIT}
    values = numbers_of(record.metrics) if status == records.FINISHED else {}
    for artifact in artifacts.values():
        values |= numbers_of(artifact.metrics)
    exact = frozenset().union(*(artifact.exact for artifact in artifacts.values()))
    if status == records.DIVERGED:
        return TrialFiles(status, record.reason or "", record, values, _shapes(artifacts), exact=exact)
    for name in record.metrics.keys() - values.keys():
        problems.append(f"{path}: the metric {name!r} is not a finite number")
    older = frozenset(name for name, each in artifacts.items() if each.older)
    infinite = frozenset(record.metrics.keys() | record.directions.keys()) - values.keys()
    exact |= frozenset(record.exact)
    return TrialFiles(status, record.reason or "", record, values, _shapes(artifacts), infinite, older, exact)


def _shapes(artifacts: Mapping[str, Artifact]) -> dict[str, Mapping[str, Shape]]:
    """Probe → the shapes that it found, by name: a profile has all moments, any other shape is of one and bears it."""
    found: dict[str, dict[str, Shape]] = {}
    moments = {name: split_moment(name) for name, each in artifacts.items() if each.shapes}
    for name, (probe, moment) in sorted(moments.items(), key=lambda each: place_of(each[1][1])):
        shapes = found.setdefault(probe, {})
        for key, shape in artifacts[name].shapes.items():
            before = shapes.get(key)
            if isinstance(shape, Profile) and isinstance(before, Profile) and before.layers == shape.layers:
                labels, values = (*before.moments, *shape.moments), (*before.values, *shape.values)
                shapes[key] = replace(before, moments=labels, values=values)
            else:
                shapes[key if isinstance(shape, Profile) and before is None else at_moment(key, moment)] = shape
    return dict(found)


def number_of(value: Any) -> float:
    """A number; nan if not."""
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else math.nan


def numbers_of(values: Mapping[str, Any]) -> dict[str, float]:
    """Those of some values that are finite numbers."""
    return {name: number_of(value) for name, value in values.items() if abs(number_of(value)) < LARGEST}
