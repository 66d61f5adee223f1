"""Folded trials in the store: which trials are computed as one batch, and how one process runs them.

Each keeps its lock, record, history and checkpoint: the store, retries, resume and reports see ordinary trials.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from swapformer.errors import UsageError
from swapformer.results.store import Store
from swapformer.study.launch.machine import computing
from swapformer.study.launch.provenance import Provenance
from swapformer.study.launch.trial import Trial, Work, execute, fit_or_measure, real_work

if TYPE_CHECKING:
    from swapformer.training.fit import Outcome
    from swapformer.training.fold import Seat

log = logging.getLogger(__name__)

MAY_DIFFER = ("seed", "data_seed", "optim", "schedule", "init_from", "runs_dir", "logger")
"""The keys of a configuration in which trials that are folded may differ: each keeps its own optimiser."""


def require_single(trials: Sequence[Trial], launcher: str) -> None:
    """Raise UsageError for trials that are to be folded, by a launcher that starts each by itself."""
    if any(fold_size(trial.config) > 1 for trial in trials):
        raise UsageError(
            f"trainer.fold needs a launcher that runs several trials in one process, but hydra/launcher={launcher} "
            "starts each by itself; use hydra/launcher=local, or trainer.fold=null"
        )


def fold_size(config: Mapping[str, Any]) -> int:
    """How many trials are computed as one batch at most; 1 for one that is not folded."""
    size = (config.get("trainer") or {}).get("fold")
    return size if isinstance(size, int) else 1


def grouped(trials: Sequence[Trial]) -> list[tuple[Trial, ...]]:
    """The trials by the process that runs them, in the order of the first of each: those that are folded together."""
    groups: list[list[Trial]] = []
    newest: dict[str, list[Trial]] = {}
    for trial in trials:
        size = fold_size(trial.config)
        key = json.dumps({k: v for k, v in trial.config.items() if k not in MAY_DIFFER}, sort_keys=True, default=str)
        group = newest.get(key) if size > 1 else None
        if group is None or len(group) >= size:
            group = newest[key] = []
            groups.append(group)
        group.append(trial)
    return [tuple(group) for group in groups]


def execute_here(trial: Trial, store: Store, provenance: Provenance) -> None:
    """Run, resume or reuse a trial in this process, as one of a single folded trial where it asks to be folded."""
    if fold_size(trial.config) > 1:
        execute_together([trial], store, provenance)
    else:
        execute(trial, store, provenance)


def execute_together(trials: Sequence[Trial], store: Store, provenance: Provenance, work: Work | None = None) -> None:
    """Run, resume or reuse folded trials, as `execute` does each. A stop reaches all of them.

    What one of them raises is on its record, and does not touch the others.
    """
    from swapformer.training.fold import Fold
    from swapformer.training.signals import stop_on_signals

    with computing(), stop_on_signals() as stop:  # one lock for all: each of them waits for the others
        fold = Fold(len(trials), stop, fitting(trials[0].config, len(trials)))
        fold.run([partial(_execute, trial, store, provenance, work) for trial in trials])


def _execute(trial: Trial, store: Store, provenance: Provenance, work: Work | None, seat: Seat) -> None:
    if seat.stop.requested is not None:
        return
    work = work or replace(real_work(), fit=partial(fit_or_measure, seat=seat))
    seated = replace(work, fit=partial(_fit, work, seat), replay=partial(_replay, work, seat))
    try:
        execute(trial, store, provenance, seated, computes=True)
    except UsageError as error:
        log.warning("trial %s: %s", trial.id, error)


def _fit(work: Work, seat: Seat, config: dict[str, Any], folder: Path) -> Outcome:
    with seat.fold.training(seat):
        return work.fit(config, folder)


def _replay(work: Work, seat: Seat, config: dict[str, Any], folder: Path) -> object:
    if seat.stop.requested is not None:
        raise KeyboardInterrupt  # artifacts are made when they are asked for again
    return work.replay(config, folder)


def fitting(config: Mapping[str, Any], count: int) -> int:
    """How many of `count` trials fit into the memory that is free now, by an estimate of a training step's bytes."""
    from swapformer.study.config.cost import bytes_of_a_step

    free = free_bytes(config["trainer"]["accelerator"])
    try:
        needed = bytes_of_a_step(config)
    except Exception as error:  # the estimate is not what the trial is for
        log.warning("the memory of a step could not be estimated (%s)", error)
        return count
    if free is None or needed * count <= free:
        return count
    most = max(1, free // max(needed, 1))
    log.warning(
        "a step of %d folded trials needs about %.1f GiB, but %.1f are free: %d are computed at once",
        *(count, needed * count / 2**30, free / 2**30, most),
    )
    return most


def free_bytes(accelerator: str) -> int | None:
    """Memory that is free: of the device, or of the machine; None where nobody says."""
    if accelerator == "gpu":
        import torch

        return int(torch.cuda.mem_get_info()[0]) if torch.cuda.is_available() else None
    try:
        lines = Path("/proc/meminfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return None
    return next((1024 * int(line.split()[1]) for line in lines if line.startswith("MemAvailable:")), None)
