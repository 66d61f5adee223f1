"""Records of a study as data frames, read from its trials; what cannot be read is no number in them."""

from __future__ import annotations

import csv
import hashlib
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pandas as pd

from swapformer.errors import UsageError
from swapformer.report.derive import before_training, derive, directions_of, ways_of
from swapformer.results.arms import Cell
from swapformer.results.history import TRAINING_LOSS, read_history
from swapformer.results.ledger import Ledger, Series, looks_in_rows
from swapformer.results.manifest import Manifest, read_manifest
from swapformer.results.moments import INIT, at_moment, split_moment
from swapformer.results.record import FINAL, FINISHED, MISSING
from swapformer.results.shapes import Shape
from swapformer.results.trial_files import TrialFiles, number_of, numbers_of, read_trial

_FORMULA = re.compile(r"'*[=+\-@\t\r]")
"""What a cell that is no number begins with where a spreadsheet computes it; apostrophes that were there count too."""

CellKey = tuple[str, str, int]
"""Condition, arm and seed."""

CELL_COLUMNS = (
    "condition", "arm", "seed", "trial", "status", "reason", "steps", "tokens", "seconds",
    "total", "non_position", "environment", "commit", "dirty", "data", "epoch",
)  # fmt: skip
METRIC_COLUMNS = ("condition", "arm", "seed", "trial", "metric", "value", "standard_error")
HISTORY_COLUMNS = ("condition", "arm", "seed", "status", "metric", "step", "value")


@dataclass(frozen=True)
class Records:
    """Everything that the store holds of a study.

    `cells`: one row per arm, seed and condition (`CELL_COLUMNS`), missing ones included; in a sequential study those of
    seeds that it came to. `metrics`: one row per finished cell and metric (`METRIC_COLUMNS`); a diverged
    trial has those that were measured before its training, and no other trial has any. `infinite`: metrics of finished
    trials that came to no finite number, by condition and arm. `histories`: the
    study's metrics during training, long (`HISTORY_COLUMNS`), for every trial that left any. `problems`: files that
    could not be read, in words. `probes`: the shapes that the probes of finished trials found, by condition, arm and
    seed, then by probe and name. `losses`: a hash of what a finished cell lost, which two trainings share to the last
    digit only where they are the same. `evaluations`: what finished trials were evaluated on, by condition, arm
    and seed: evaluation set → its items in short; none of trials from before that was kept. `remarks`: what the records
    of finished trials say besides, by condition, arm and seed.
    """

    manifest: Manifest
    cells: pd.DataFrame
    metrics: pd.DataFrame
    histories: pd.DataFrame
    directions: Mapping[str, str]
    problems: tuple[str, ...]
    probes: Mapping[CellKey, Mapping[str, Mapping[str, Shape]]] = field(default_factory=dict)
    infinite: frozenset[tuple[str, str, str]] = frozenset()
    losses: Mapping[CellKey, str] = field(default_factory=dict)
    evaluations: Mapping[CellKey, Mapping[str, str]] = field(default_factory=dict)
    remarks: Mapping[CellKey, Sequence[str]] = field(default_factory=dict)

    def at(self, condition: str) -> Records:
        """The records of one condition of the grid."""
        cells, metrics, histories = (
            frame[frame["condition"] == condition].reset_index(drop=True)
            for frame in (self.cells, self.metrics, self.histories)
        )
        probes = {key: data for key, data in self.probes.items() if key[0] == condition}
        infinite = frozenset(key for key in self.infinite if key[0] == condition)
        losses = {key: found for key, found in self.losses.items() if key[0] == condition}
        return replace(
            self, manifest=self.manifest.at(condition), cells=cells, metrics=metrics, histories=histories,
            probes=probes, infinite=infinite, losses=losses,
            evaluations={key: found for key, found in self.evaluations.items() if key[0] == condition},
            remarks={key: found for key, found in self.remarks.items() if key[0] == condition},
        )  # fmt: skip

    def count(self, status: str, arm: str | None = None) -> int:
        """The number of cells (of `arm`) with this status."""
        chosen = self.cells["status"] == status
        return int((chosen if arm is None else chosen & (self.cells["arm"] == arm)).sum())


def read(study_dir: Path, runs_dir: Path) -> Records:
    """Read the manifest in `study_dir` and the trials that it names under `runs_dir/trials`."""
    manifest = read_manifest(study_dir)
    problems: list[str] = []
    cells, metrics, histories = [], [], []
    ways = ways_of(manifest)
    followed = list(dict.fromkeys([*manifest.metrics, *(split_moment(metric)[0] for metric in manifest.metrics)]))
    directions: dict[str, str] = directions_of(ways)
    probes: dict[CellKey, Mapping[str, Mapping[str, Shape]]] = {}
    infinite: set[tuple[str, str, str]] = set()
    losses: dict[CellKey, str] = {}
    evaluations: dict[CellKey, Mapping[str, str]] = {}
    remarks: dict[CellKey, Sequence[str]] = {}
    for cell in _all_cells(manifest):
        directory = runs_dir / "trials" / cell.trial
        trial = read_trial(directory, cell, problems) if cell.trial else TrialFiles(MISSING)
        cells.append(_cell_row(cell, trial))
        metrics += _metric_rows(cell, trial)
        infinite |= {(cell.condition, cell.arm, name) for name in trial.infinite}
        if trial.probes:
            probes[cell.condition, cell.arm, cell.seed] = trial.probes
        if trial.record is not None:
            if trial.status == FINISHED and trial.record.evaluation:
                evaluations[cell.condition, cell.arm, cell.seed] = _evaluated(trial.record.evaluation)
            if trial.status == FINISHED and trial.record.remarks:
                remarks[cell.condition, cell.arm, cell.seed] = trial.record.remarks
            directions |= {k: v for k, v in trial.record.directions.items() if v in ("lower", "higher")}
        if trial.status != MISSING:
            history = read_history(directory, [*followed, TRAINING_LOSS], problems)
            if (final := trial.metrics.get("val/loss")) is not None:
                losses[cell.condition, cell.arm, cell.seed] = _loss_hash(final, history)
            if trial.status in FINAL and trial.record is not None:
                own, steps = trial.record.directions, number_of(trial.record.steps)
                possible = ways if trial.status == FINISHED else before_training(ways)
                found = derive(possible, trial.metrics, history, own, steps, problems)
                history = _with_ends(history, trial, followed)
                metrics += [
                    (cell.condition, cell.arm, cell.seed, cell.trial, name, value, math.nan)
                    for name, value in found.items()
                    if math.isfinite(value)
                ]
                infinite |= {(cell.condition, cell.arm, name) for name, value in found.items() if math.isnan(value)}
            history = history[history["metric"].isin(followed)]
            histories.append(
                history.assign(condition=cell.condition, arm=cell.arm, seed=cell.seed, status=trial.status)
            )
    filled = [history for history in histories if len(history)]
    long = pd.concat(filled, ignore_index=True) if filled else pd.DataFrame({name: [] for name in HISTORY_COLUMNS})
    return Records(
        manifest,
        pd.DataFrame(cells, columns=list(CELL_COLUMNS)),
        pd.DataFrame(metrics, columns=list(METRIC_COLUMNS)),
        long[list(HISTORY_COLUMNS)],
        directions,
        tuple(problems),
        probes,
        frozenset(infinite),
        losses,
        evaluations,
        remarks,
    )


def _with_ends(history: pd.DataFrame, trial: TrialFiles, metrics: Sequence[str]) -> pd.DataFrame:
    """A trial's history with what its probes measured before and after training, at the first and the last step."""
    probed = [metric for metric in metrics if metric.startswith("probe/") and split_moment(metric)[0] == metric]
    assert trial.record is not None
    watched = {*history["metric"], *(metric for metric in probed if at_moment(metric, INIT) in trial.metrics)}
    rows = [
        (step, metric, trial.metrics[name])
        for metric in probed
        for step, name in ((0, at_moment(metric, INIT)), (trial.record.steps, metric))
        if metric in watched and name in trial.metrics
    ]
    ends = pd.DataFrame(rows, columns=["step", "metric", "value"]).astype({"step": "int64", "value": "float64"})
    return pd.concat([history, ends], ignore_index=True).sort_values(["metric", "step"]) if rows else history


def to_cell(name: str) -> str:
    """A name as a cell of a table: one that a spreadsheet would take for a formula begins with an apostrophe."""
    return f"'{name}" if _FORMULA.match(name) and not _is_number(name) else name


def from_cell(cell: str) -> str:
    """The name that `to_cell` has written."""
    return cell[1:] if cell.startswith("'") and _FORMULA.match(cell) else cell


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


def read_results(path: Path, manifest: Manifest) -> Records:
    """The records that a study's `results.csv` holds, for a manifest that says what was asked and names no cells.

    Arms without a row were impossible. Histories and findings of probes are not in that file.
    """
    try:
        with path.open(encoding="utf-8", newline="") as file:
            rows = [{from_cell(key): from_cell(cell) for key, cell in row.items()} for row in csv.DictReader(file)]
        looks, unknown = looks_in_rows(rows)
        measured = [row for row in rows if row["arm"]]
        cells: dict[CellKey, tuple[Any, ...]] = {}
        metrics = []
        for row in measured:
            condition = _condition(row, manifest)
            cell = (condition, row["arm"], int(row["seed"]))
            known = (row["trial"], row["status"], "", *[math.nan] * 5, row["environment"], "", False, "", "")
            cells[cell] = (*cell, *known)
            if row["value"]:
                error = float(row["evaluation_se"] or "nan")
                metrics.append((*cell, row["trial"], row["metric"], float(row["value"]), error))
        directions = {row["metric"]: row["direction"] for row in measured if row["direction"]}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UsageError(f"{path} must be a study's results.csv, but cannot be read ({error})") from None
    impossible = {
        (arm, condition): "no results"
        for arm in manifest.arms
        for condition in manifest.conditions
        if not any(key[:2] == (condition, arm) for key in cells)
    }
    filled = replace(
        manifest,
        seeds=tuple(dict.fromkeys([*manifest.seeds, *(seed for _, _, seed in cells)])),
        cells=tuple(Cell(arm, seed, str(row[3]), condition) for (condition, arm, seed), row in cells.items()),
        impossible_at=impossible,
        ledger=Ledger((Series("", looks),) if looks else (), unknown),
    )
    return Records(
        filled,
        pd.DataFrame(list(cells.values()), columns=list(CELL_COLUMNS)),
        pd.DataFrame(metrics, columns=list(METRIC_COLUMNS)),
        pd.DataFrame({name: [] for name in HISTORY_COLUMNS}),
        directions,
        (),
    )


def _condition(row: Mapping[str, str], manifest: Manifest) -> str:
    """The condition of the grid that a row of `results.csv` belongs to."""
    for name, values in manifest.conditions.items():
        if all(row[key] == value for key, value in values.items()):
            return name
    raise ValueError(f"a row has no condition of the grid: {dict(row)}")


def _evaluated(sets: Mapping[str, Any]) -> dict[str, str]:
    """Evaluation set → its items in short: `800 items (3fa1b2c3d4e5f607)`."""
    return {
        name: f"{found.get('items')} items ({found.get('fingerprint')})"
        for name, found in sets.items()
        if isinstance(found, dict)
    }


def _loss_hash(final: float, history: pd.DataFrame) -> str:
    """A hash of the final loss to its last digit; of 0, which other trainings may reach, with the losses on the way.

    Those are means over `log_every` steps: they tell apart trainings that are the same.
    """
    rows = history.loc[(history["metric"] == TRAINING_LOSS) & (final == 0), ["step", "value"]]
    return hashlib.sha256(repr((final, rows.to_numpy(dtype=float).tolist())).encode()).hexdigest()


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
    possible = {(cell.arm, cell.condition) for cell in expected.values()}
    named = {(cell.arm, cell.seed, cell.condition): cell for cell in manifest.cells}
    return list((expected | {key: cell for key, cell in named.items() if (key[0], key[2]) in possible}).values())


def _cell_row(cell: Cell, trial: TrialFiles) -> tuple[Any, ...]:
    row, record = (cell.condition, cell.arm, cell.seed, cell.trial, trial.status, trial.reason), trial.record
    if record is None:
        return (*row, *[math.nan] * 5, "", "", False, "", "")
    return (
        *row, *map(number_of, (record.steps, record.tokens, record.seconds)),
        number_of(record.parameters.get("total")), number_of(record.parameters.get("non_position")),
        record.environment_class, str(record.git.get("commit") or ""), bool(record.git.get("dirty")),
        str(record.data.get("fingerprint") or ""), str(record.results_epoch),
    )  # fmt: skip


def _metric_rows(cell: Cell, trial: TrialFiles) -> list[tuple[Any, ...]]:
    errors = {} if trial.record is None else numbers_of(trial.record.standard_errors)
    return [
        (cell.condition, cell.arm, cell.seed, cell.trial, name, value, errors.get(name, math.nan))
        for name, value in trial.metrics.items()
    ]
