"""Status of a study, read from its manifest and the store: also while another process runs it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from swapformer.results import record as records
from swapformer.results.arms import Cell, arm_name
from swapformer.results.artifacts import read_artifacts
from swapformer.results.config import read_config
from swapformer.results.history import newest_step
from swapformer.results.manifest import Manifest, read_manifest
from swapformer.results.record import MISSING, Record
from swapformer.results.store import Store

_STOPPED = (records.KILLED, records.INTERRUPTED, records.FAILED, records.CORRUPT)


@dataclass(frozen=True)
class RunningTrial:
    """A trial that a process is running now.

    Attributes:
        arm: with the condition of a grid, and with `tuning` where its setting is only tried.
        step: of the newest row of its history; 0 before the first.
        steps: how many it takes; None where its configuration does not say.
        left: seconds to its end, as far as one can say.
        attempt: how many times it has been started.
    """

    trial: str
    arm: str
    seed: int
    step: int
    steps: int | None
    left: float | None
    attempt: int

    @property
    def share(self) -> float:
        """The progress of a trial."""
        return min(self.step / self.steps, 1.0) if self.steps else 0.0


@dataclass(frozen=True)
class StoppedTrial:
    """A trial that was started, has no result, and does not run: killed, interrupted, failed or corrupt, and why."""

    trial: str
    arm: str
    seed: int
    status: str
    attempts: int
    reason: str


@dataclass(frozen=True)
class StudyStatus:
    """The state of a study.

    Attributes:
        arms: arm → how many of its trials have each status, `missing` among them.
        tuning: the same of all trials that settings are chosen by; empty where nothing is tuned.
        impossible: arms that were left out, with the reason.
        running: the trials that run now.
        left: seconds until all trials have ended, as far as one can say; None where none runs or none has ended yet.
    """

    study: str
    arms: Mapping[str, Mapping[str, int]]
    tuning: Mapping[str, int]
    impossible: Mapping[str, str]
    running: Sequence[RunningTrial]
    stopped: Sequence[StoppedTrial]
    left: float | None

    @property
    def counts(self) -> Counter[str]:
        """The number of trials with each status."""
        return sum((Counter(counts) for counts in (*self.arms.values(), self.tuning)), Counter[str]())


def study_status(folder: Path, store: Store) -> StudyStatus:
    """The state of the study in `folder`. Raises UsageError where its manifest cannot be read."""
    manifest = read_manifest(folder)
    tuning = tuning_cells(manifest)
    found = {cell: store.read(cell.trial) for cell in (*tuning, *manifest.cells)}
    statuses = {cell: _status(cell, record, store) for cell, record in found.items()}
    times = [record.seconds for record in found.values() if record is not None and record.final]
    usual = fmean(times) if times else None
    running = [
        _running(cell, found[cell], store, usual) for cell, status in statuses.items() if status == records.RUNNING
    ]
    arms = _by_arm(manifest, statuses)
    tried = Counter(statuses[cell] for cell in tuning)
    counts = sum(map(Counter, arms.values()), tried)
    waiting = sum(counts[status] for status in (MISSING, records.KILLED, records.INTERRUPTED, records.CORRUPT))
    return StudyStatus(
        study=manifest.name,
        arms=arms,
        tuning=dict(tried),
        impossible=manifest.impossible,
        running=running,
        stopped=[
            StoppedTrial(*_cell(cell), statuses[cell], record.attempts, record.reason or _failed_probes(record))
            for cell, record in found.items()
            if record and statuses[cell] in _STOPPED
        ],
        left=_left(running, waiting, usual),
    )


def tuning_cells(manifest: Manifest) -> list[Cell]:
    """The trials that settings are chosen by, as cells of arms that say so."""
    if manifest.tuning is None:
        return []
    return [
        Cell(f"{tried.arm} tuning {tried.text}", seed, trial, tried.condition)
        for tried in manifest.tuning.tried
        for seed, trial in zip(manifest.tuning.seeds, tried.trials, strict=False)
    ]


def _by_arm(manifest: Manifest, statuses: Mapping[Cell, str]) -> dict[str, dict[str, int]]:
    """An arm that is possible in a condition and has no cell there yet misses the seeds of the first look."""
    counts = {arm: Counter[str]() for arm in manifest.possible}
    for cell in manifest.cells:
        counts[cell.arm][statuses[cell]] += 1
    known = {(cell.arm, cell.condition) for cell in manifest.cells}
    first = manifest.looks[0] if manifest.looks else len(manifest.seeds)
    for condition in manifest.conditions:
        for arm in manifest.at(condition).possible:
            if (arm, condition) not in known:
                counts[arm][MISSING] += first
    return {arm: dict(found) for arm, found in counts.items()}


def _status(cell: Cell, record: Record | None, store: Store) -> str:
    """The status of a trial as its study sees it: failed where a probe that is asked of it failed."""
    status = store.status(cell.trial, record)
    if record is not None and status == records.FINISHED and cell.probes and _failed_probes(record):
        found = read_artifacts(store.directory(cell.trial), [], cell.probes)
        return status if cell.probes.keys() <= found.keys() else records.FAILED
    return status


def _failed_probes(record: Record) -> str:
    """The last note on probes that failed; empty if no probe failed."""
    return next((note for note in reversed(record.notes) if note.startswith("probes")), "")


def _cell(cell: Cell) -> tuple[str, str, int]:
    return cell.trial, arm_name(cell.arm, cell.condition), cell.seed


def _running(cell: Cell, record: Record | None, store: Store, usual: float | None) -> RunningTrial:
    folder = store.directory(cell.trial)
    step, steps = newest_step(folder), _steps(read_config(folder))
    share = min(step / steps, 1.0) if steps else 0.0
    if usual is not None:
        left: float | None = usual * (1 - share)
    else:  # the first of the study: by its own speed, unless an earlier attempt has done a part of it
        fresh = record is not None and record.attempts == 1 and share > 0
        left = store.age(cell.trial) * (1 / share - 1) if fresh else None
    return RunningTrial(*_cell(cell), step, steps, left, record.attempts if record else 1)


def _steps(config: Mapping[str, Any]) -> int | None:
    budget = config.get("budget")
    steps = budget.get("steps") if isinstance(budget, dict) else None
    return steps if isinstance(steps, int) and steps > 0 else None


def _left(running: Sequence[RunningTrial], waiting: int, usual: float | None) -> float | None:
    """Time of all that is to be done / trials that run side by side."""
    own = [trial.left for trial in running if trial.left is not None]
    if not running or len(own) < len(running) or (waiting and usual is None):
        return None
    return max(max(own), (sum(own) + waiting * (usual or 0.0)) / len(running))
