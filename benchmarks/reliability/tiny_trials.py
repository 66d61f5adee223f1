"""Trials that are over in a second, what they come to when nothing disturbs them, and how others compare."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.trials import one_of_each_seed
from swapformer.results.files import TEMPORARY
from swapformer.results.store import Store
from swapformer.study.launch.local import LocalLauncher
from swapformer.study.launch.missing_trials import launch_missing
from swapformer.study.launch.provenance import current_provenance
from swapformer.study.launch.trial import Trial

SMALL = (
    *("task=copy", "task.lengths=[2,6]", "task.eval_lengths=[]", "task.batch_size=8", "model.num_layers=1"),
    *("model.d_model=16", "model.num_heads=2", "eval.every=20", "eval.batches=1", "eval.final_batches=2"),
    *("checkpoint_every=5", "log_every=5", "schedule.warmup_steps=5"),
)
"""Overrides that make any trial small, with a checkpoint every five steps."""


@dataclass(frozen=True)
class Result:
    """What must be the same whatever happened on the way: the final numbers, and the curves."""

    status: str
    steps: int
    metrics: Mapping[str, float]
    history: str


def trials(count: int, *overrides: str) -> list[Trial]:
    """One small trial for each seed."""
    return one_of_each_seed([*SMALL, *overrides], count)


def launch(wanted: Sequence[Trial], store: Store) -> None:
    """Run what the store lacks, each trial in a process of its own, as a study does."""
    launch_missing(wanted, store, LocalLauncher(store, current_provenance()))


def result(store: Store, trial: str) -> Result | None:
    """What a trial came to; None where it has no result."""
    record, history = store.read(trial), store.directory(trial) / "metrics.csv"
    if record is None or not record.final or not history.is_file():
        return None
    return Result(record.status, record.steps, dict(record.metrics), history.read_text(encoding="utf-8"))


@contextmanager
def undisturbed(wanted: Sequence[Trial]) -> Iterator[Mapping[str, Result]]:
    """The results of trials in a store of their own, where nothing happens to them.

    Raises:
        RuntimeError: if one of them has none.
    """
    with tempfile.TemporaryDirectory() as folder:
        store = Store(folder)
        launch(wanted, store)
        found = {trial.id: result(store, trial.id) for trial in wanted}
        if not all(found.values()):
            raise RuntimeError("a trial that nothing disturbed did not finish; nothing was measured")
        yield {trial: held for trial, held in found.items() if held is not None}


def differing(store: Store, expected: Mapping[str, Result]) -> list[str]:
    """The trials that have another result than expected, or none."""
    return [trial for trial, wanted in expected.items() if result(store, trial) != wanted]


def leftovers(store: Store) -> list[Path]:
    """Files that a writer did not live to move into place: records and the like, checkpoints, histories, artifacts.

    A trial that goes on replaces its own; so they are to be counted when all have ended.
    """
    return sorted([*store.runs_dir.rglob(f"{TEMPORARY}*"), *store.trials.rglob("*.tmp")])


@contextmanager
def silence() -> Iterator[None]:
    """Without the warnings that every disturbance brings, rightly."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)


def count(name: str, found: Iterable[object], of: str) -> tuple[str, float, str, str, bool]:
    """The fields of a figure that should be zero."""
    number = len(list(found))
    return name, float(number), of, "0", number == 0
