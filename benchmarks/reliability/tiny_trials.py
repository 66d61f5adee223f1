"""Trials of a second, their results when nothing disturbs them, and comparisons of other trials with these."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.measurement import Figure
from swapformer.results.files import TEMPORARY
from swapformer.results.history import SECONDS
from swapformer.results.store import Store
from swapformer.study.config.compose import check, compose
from swapformer.study.launch.local import LocalLauncher
from swapformer.study.launch.missing_trials import launch_missing
from swapformer.study.launch.provenance import current_provenance
from swapformer.study.launch.trial import Trial
from swapformer.study.plan import make_trial

SMALL = (
    *("task=copy", "task.lengths=[2,6]", "task.eval_lengths=[]", "task.batch_size=8", "model.num_layers=1"),
    *("model.d_model=16", "model.num_heads=2", "eval.every=10", "eval.batches=1", "eval.final_batches=2"),
    *("checkpoint_every=5", "log_every=5", "schedule.warmup_steps=5"),
)
"""Overrides that make any trial small, with a checkpoint every five steps."""


@dataclass(frozen=True)
class TrialResult:
    """The parts of a result that no disturbance may change: the final numbers, and the curves."""

    status: str
    steps: int
    metrics: Mapping[str, float]
    history: str  # without its seconds


def trial_of_each_seed(overrides: Sequence[str], count: int) -> list[Trial]:
    """A trial for each of the first `count` seeds."""
    made = []
    for seed in range(count):
        config = compose([*overrides, f"seed={seed}"])
        check(config)
        made.append(make_trial(config))
    return made


def trials(count: int, *overrides: str) -> list[Trial]:
    """One small trial for each seed."""
    return trial_of_each_seed([*SMALL, *overrides], count)


def launch(wanted: Sequence[Trial], store: Store) -> None:
    """Run what the store lacks, each trial in a process of its own, as a study does."""
    launch_missing(wanted, store, LocalLauncher(store, current_provenance()))


def result(store: Store, trial: str) -> TrialResult | None:
    """The result of a trial; None where it has none."""
    record, history = store.read(trial), store.directory(trial) / "metrics.csv"
    if record is None or not record.final or not history.is_file():
        return None
    rows = history.read_text(encoding="utf-8").splitlines(keepends=True)
    measured = "".join(row for row in rows if f",{SECONDS}," not in row)  # no two trainings take the same time
    return TrialResult(record.status, record.steps, dict(record.metrics), measured)


@contextmanager
def undisturbed(wanted: Sequence[Trial]) -> Iterator[Mapping[str, TrialResult]]:
    """The results of trials in a store of their own, where nothing happens to them.

    Raises RuntimeError if one of them has none.
    """
    with tempfile.TemporaryDirectory() as folder:
        store = Store(folder)
        launch(wanted, store)
        found = {trial.id: result(store, trial.id) for trial in wanted}
        if not all(found.values()):
            raise RuntimeError("a trial that nothing disturbed did not finish; nothing was measured")
        yield {trial: held for trial, held in found.items() if held is not None}


def differing(store: Store, expected: Mapping[str, TrialResult]) -> list[str]:
    """The trials that have another result than expected, or none."""
    return [trial for trial, wanted in expected.items() if result(store, trial) != wanted]


def leftovers(store: Store) -> list[Path]:
    """Temporary files of writers that were killed: records and the like, checkpoints, histories, artifacts.

    A trial that goes on replaces its own; so they are to be counted when all have ended.
    """
    return sorted([*store.runs_dir.rglob(f"{TEMPORARY}*"), *store.trials.rglob("*.tmp")])


@contextmanager
def silence() -> Iterator[None]:
    """Silence the warnings that every disturbance rightly causes."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)


def none_of(name: str, found: Iterable[object], unit: str) -> Figure:
    """The number of what was found, which should be zero."""
    number = len(list(found))
    return Figure(name, float(number), unit, "0", number == 0)
