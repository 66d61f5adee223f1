"""Launches the trials of a study that the store lacks, until each has its result or has had its chances.

An exception of a launcher is noted, not believed: results come only from the store.
"""

from __future__ import annotations

import logging
import os
import time
from collections import Counter
from collections.abc import Sequence

from swapformer.console import unwritable
from swapformer.errors import UsageError
from swapformer.ranges import Natural, check
from swapformer.results import record as records
from swapformer.results.record import Record
from swapformer.results.store import Store
from swapformer.study.launch.launcher import Launch
from swapformer.study.launch.other_node import is_other_node, take_part
from swapformer.study.launch.trial import Trial, is_complete

log = logging.getLogger(__name__)

RETRIES = 1
"""How often a trial that was killed, or left nothing at all, is started once more within one run of a study."""
POLL = 0.5
"""Seconds between looks at trials that another process is running."""


def launch_missing(
    trials: Sequence[Trial], store: Store, launch: Launch, tick: Launch | None = None, retries: int = RETRIES
) -> None:
    """Launch what is missing among `trials` until each has its result or has had its chances.

    A killed trial is started `retries` times more; one that failed, was interrupted, ran into its time limit, or whose
    probe failed is not. A trial that another process is running is waited for. KeyboardInterrupt passes through.

    Raises:
        UsageError: for less than no retries, or what the launcher refuses.
    """
    check(Natural, retries, "hydra.launcher.retries")
    store.prepare()
    if is_other_node(trials):
        take_part(trials, store)
        return
    before = {trial.id: store.peek(trial.id) for trial in trials}
    attempts: Counter[str] = Counter()
    while todo := [t for t in trials if _may_start(t, store, before[t.id], attempts[t.id], retries)]:
        free = [trial for trial in todo if not store.locked(trial.id)]
        if not free:
            if tick is not None:
                tick([trial for trial in todo if store.locked(trial.id)])
            time.sleep(POLL)
            continue
        for trial in free:
            _repair(trial, store)
        try:
            launch(free)
        except UsageError:
            raise
        except Exception as error:
            log.warning("the launcher raised %s: %s", type(error).__name__, unwritable(error) or error)
        # What another process has taken meanwhile was not our attempt.
        attempts.update(trial.id for trial in free if not store.locked(trial.id))


def _repair(trial: Trial, store: Store) -> None:
    """Set aside what is damaged, where anything is. Raises UsageError for a newer swapformer's record."""
    if os.path.lexists(store.directory(trial.id)):
        with store.lock(trial.id) as mine:
            if mine:
                store.repair(trial.id)


def trial_status(trial: Trial, store: Store) -> str:
    """The trial's status as a study sees it: one of the records' or `missing`, or `failed` when a probe is missing."""
    record = store.read(trial.id)
    if record is not None and record.final and not is_complete(trial, store, record):
        return records.FAILED
    return store.status(trial.id, record)


def _may_start(trial: Trial, store: Store, before: Record | None, attempts: int, retries: int) -> bool:
    record = store.read(trial.id)
    if is_complete(trial, store, record):
        return False
    if record is None or record.status in (records.KILLED, records.CORRUPT):
        return attempts <= retries
    if record.status == records.RUNNING:
        return True
    if record.final and record != before and not any(note.startswith("probes") for note in record.notes):
        return attempts <= 1  # a process that shares the work trained it, and ours came too early for its own probes
    if record.status == records.FAILED and record != before:
        return False  # failed in this run, here or in a process that shares the work: once more would fail again
    return attempts < 1
