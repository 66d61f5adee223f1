"""Records of a study as data frames, read from its trials; what cannot be read is no number in them."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pandas as pd

from swapformer.report.derive import (
    TrialNumbers,
    before_training,
    derive,
    directions_of,
    losses_of_diverged,
    target_arms,
    times_of,
    ways_of,
)
from swapformer.report.target_times import TargetTime, cut_off, last_value
from swapformer.results.arms import Cell, arm_name
from swapformer.results.history import TRAINING_LOSS, read_history
from swapformer.results.items import FILE, ItemMeans, Items, mean_items, read_items
from swapformer.results.manifest import Manifest, read_manifest
from swapformer.results.moments import INIT, at_moment, split_moment
from swapformer.results.record import DIVERGED, FINAL, FINISHED, MISSING, Record
from swapformer.results.shapes import Shape
from swapformer.results.trial_files import TrialFiles, number_of, numbers_of, read_trial

CellKey = tuple[str, str, int]
"""Condition, arm and seed."""

CELL_COLUMNS = (
    "condition", "arm", "seed", "trial", "status", "reason", "steps", "tokens", "seconds",
    "total", "non_position", "environment", "processor", "commit", "dirty", "data", "epoch",
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
    of finished trials say besides, by condition, arm and seed. `older`: probe → how many
    trials hold its figures' data in the form of an older version. `unreached`: (condition, arm, seed, metric) of times
    to a target that the trial did not reach; they are cut off. `items`: the sums over evaluated items of each condition
    and arm, of each finished seed, or as the mean of several. `generated`: whether the task generates
    its samples and reads no text. `whole`: no further run will come, so that none is waited for.
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
    older: Mapping[str, int] = field(default_factory=dict)
    unreached: frozenset[tuple[str, str, int, str]] = frozenset()
    items: Mapping[tuple[str, str], ItemMeans] = field(default_factory=dict)
    generated: bool = False
    whole: bool = False

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
            unreached=frozenset(key for key in self.unreached if key[0] == condition),
            items={key: found for key, found in self.items.items() if key[0] == condition},
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
    ways = ways_of(manifest.derive, manifest.claims)
    until = times_of(ways)
    followed = list(dict.fromkeys([*manifest.metrics, *(split_moment(metric)[0] for metric in manifest.metrics)]))
    directions: dict[str, str] = {}
    operations = {(each.arm, each.condition): each.flops for each in manifest.fairness}
    exact: dict[str, bool] = {}
    examples: set[tuple[str, str, str, str]] = set()
    older: dict[str, int] = {}
    probes: dict[CellKey, Mapping[str, Mapping[str, Shape]]] = {}
    infinite: set[tuple[str, str, str]] = set()
    losses: dict[CellKey, str] = {}
    evaluations: dict[CellKey, Mapping[str, str]] = {}
    remarks: dict[CellKey, Sequence[str]] = {}
    times: dict[tuple[str, str], dict[Cell, TargetTime]] = {}
    targets = _targets(manifest, runs_dir, problems)
    kept: dict[tuple[str, str], dict[tuple[int, ...], Items]] = {}

    def add(cell: Cell, derived: Mapping[str, float]) -> None:
        for name, value in derived.items():
            if math.isfinite(value):
                metrics.append((cell.condition, cell.arm, cell.seed, cell.trial, name, value, math.nan))
            elif math.isnan(value):
                infinite.add((cell.condition, cell.arm, name))

    for cell in _all_cells(manifest):
        directory = runs_dir / "trials" / cell.trial
        trial = read_trial(directory, cell, problems) if cell.trial else TrialFiles(MISSING)
        cells.append(_cell_row(cell, trial))
        metrics += _metric_rows(cell, trial)
        infinite |= {(cell.condition, cell.arm, name) for name in trial.infinite}
        if shapes := _first_examples(cell, trial, examples):
            probes[cell.condition, cell.arm, cell.seed] = shapes
        for probe in trial.older:
            older[probe] = older.get(probe, 0) + 1
        if trial.record is not None:
            if trial.status == FINISHED and trial.record.evaluation:
                evaluations[cell.condition, cell.arm, cell.seed] = _evaluated(trial.record.evaluation)
            if trial.status == FINISHED and manifest.claims and trial.record.evaluation:
                kept.setdefault((cell.condition, cell.arm), {})[(cell.seed,)] = read_items(directory / FILE)
            if trial.status == FINISHED and trial.record.remarks:
                remarks[cell.condition, cell.arm, cell.seed] = trial.record.remarks
            directions |= {k: v for k, v in trial.record.directions.items() if v in ("lower", "higher")}
        for name in trial.metrics:
            exact[name] = exact.get(name, True) and name in trial.exact
        if trial.status != MISSING:
            history = read_history(directory, [*followed, TRAINING_LOSS], problems)
            if (final := trial.metrics.get("val/loss")) is not None:
                losses[cell.condition, cell.arm, cell.seed] = _loss_hash(final, history)
            if trial.status in FINAL and trial.record is not None:
                flops = operations.get((cell.arm, cell.condition), math.nan)
                target = targets.get((cell.condition, cell.seed), {})
                numbers = _numbers_of_trial(trial, trial.record, history, flops, target)
                found = derive(ways if trial.status == FINISHED else before_training(ways), numbers, problems)
                for name in found.keys() & until.keys():
                    times.setdefault((cell.condition, name), {})[cell] = until[name].time(numbers)
                    found.pop(name)
                found |= losses_of_diverged(ways, trial.record.baselines) if trial.status == DIVERGED else {}
                history = _with_ends(history, trial, followed)
                add(cell, found)
            history = history[history["metric"].isin(followed)]
            histories.append(
                history.assign(condition=cell.condition, arm=cell.arm, seed=cell.seed, status=trial.status)
            )
    unreached: set[tuple[str, str, int, str]] = set()
    for (condition, name), reached in times.items():
        values, cut = cut_off(reached)
        unreached |= {(condition, cell.arm, cell.seed, name) for cell in cut}
        for cell, value in values.items():
            add(cell, {name: value})
    filled = [history for history in histories if len(history)]
    long = pd.concat(filled, ignore_index=True) if filled else pd.DataFrame({name: [] for name in HISTORY_COLUMNS})
    declared = tuple(name for name, always in exact.items() if always and name not in manifest.exact)
    problems += _item_problems(kept)
    return Records(
        replace(manifest, exact=(*manifest.exact, *declared)),
        pd.DataFrame(cells, columns=list(CELL_COLUMNS)),
        pd.DataFrame(metrics, columns=list(METRIC_COLUMNS)),
        long[list(HISTORY_COLUMNS)],
        directions | directions_of(ways, directions),
        tuple(problems),
        probes,
        frozenset(infinite),
        losses,
        evaluations,
        remarks,
        older,
        frozenset(unreached),
        items=kept,
        generated="source" not in (manifest.shared_config.get("task") or {"source": ""}),
    )


def _item_problems(kept: Mapping[tuple[str, str], ItemMeans]) -> Iterator[str]:
    """The reason why nothing is known of other text for an arm of which some trials kept items."""
    for (condition, arm), of_seeds in kept.items():
        found = list(of_seeds.values())
        name, without = arm_name(arm, condition), sum(not each for each in found)
        if 0 < without < len(found):
            what = f"{without} of {len(found)} trials of {name} have no sums over items, or a damaged {FILE}"
        elif not without and set(mean_items(found)) < set(found[0]):
            what = f"the trials of {name} were not evaluated on the same items"
        else:
            continue
        yield f"{what}, so whether verdicts on it hold for other text is not known"


def _targets(manifest: Manifest, runs_dir: Path, problems: list[str]) -> dict[tuple[str, int], dict[str, float]]:
    """(condition, seed) → derived name → the value at which the history of the arm that it names ends."""
    found: dict[tuple[str, int], dict[str, float]] = {}
    for name, (arm, metric) in target_arms(ways_of(manifest.derive, manifest.claims)).items():
        for cell in manifest.cells:
            folder = runs_dir / "trials" / cell.trial
            if cell.arm == arm and cell.trial and read_trial(folder, cell, problems).status == FINISHED:
                value = last_value(read_history(folder, [metric], problems))
                found.setdefault((cell.condition, cell.seed), {})[name] = value
    return found


def _numbers_of_trial(
    trial: TrialFiles, record: Record, history: pd.DataFrame, flops: float, targets: Mapping[str, float]
) -> TrialNumbers:
    """The measurements of a trial, from which numbers are derived."""
    steps, tokens, seconds = (number_of(each) for each in (record.steps, record.tokens, record.seconds))
    return TrialNumbers(
        trial.metrics, history, record.directions, steps, tokens, flops, seconds, record.baselines, targets
    )


def _first_examples(cell: Cell, trial: TrialFiles, held: set[tuple[str, str, str, str]]) -> dict[str, dict[str, Shape]]:
    """The shapes of a trial without the examples of one seed that an earlier seed of its arm has: they may be large."""
    found: dict[str, dict[str, Shape]] = {}
    for probe, shapes in trial.probes.items():
        for name, shape in shapes.items():
            key = (cell.condition, cell.arm, probe, name)
            if shape.per_seed and key in held:
                continue
            if shape.per_seed:
                held.add(key)
            found.setdefault(probe, {})[name] = shape
    return found


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
        return (*row, *[math.nan] * 5, "", "", "", False, "", "")
    return (
        *row, *map(number_of, (record.steps, record.tokens, record.seconds)),
        number_of(record.parameters.get("total")), number_of(record.parameters.get("non_position")),
        record.environment_class, str(record.machine.get("processor") or ""),
        str(record.git.get("commit") or ""), bool(record.git.get("dirty")),
        str(record.data.get("fingerprint") or ""), str(record.results_epoch),
    )  # fmt: skip


def _metric_rows(cell: Cell, trial: TrialFiles) -> list[tuple[Any, ...]]:
    errors = {} if trial.record is None else numbers_of(trial.record.standard_errors)
    return [
        (cell.condition, cell.arm, cell.seed, cell.trial, name, value, errors.get(name, math.nan))
        for name, value in trial.metrics.items()
    ]
