"""Adds the ranks of this node to trials that another node has started. The other node keeps lock and record."""

from __future__ import annotations

import time
from collections.abc import Sequence

from swapformer.errors import UsageError
from swapformer.results import record as records
from swapformer.results.record import Record
from swapformer.results.store import Store
from swapformer.study.launch.trial import Trial
from swapformer.training.nodes import TIMEOUT, meeting

POLL = 0.5
"""Seconds between looks at the store."""


def nodes_of(trials: Sequence[Trial]) -> int:
    """The most nodes that one of the trials has."""
    return max((int(trial.config.get("trainer", {}).get("nodes", 1)) for trial in trials), default=1)


def is_other_node(trials: Sequence[Trial]) -> bool:
    """Whether these trials have several nodes, and another than this one begins them."""
    if (nodes := nodes_of(trials)) == 1:
        return False
    try:
        return meeting(nodes).node > 0
    except UsageError:  # this machine may only submit them; where they are started it is said
        return False


def take_part(trials: Sequence[Trial], store: Store) -> None:
    """Give each trial this node's ranks once the first node has begun it, and return when all have ended.

    A trial of one node is waited for. One that the first node begins again, since it was killed, is joined again. One
    that it does not begin within the time that nodes wait for each other is left.

    Raises:
        KeyboardInterrupt: once the ranks were asked to stop, on whichever node.
    """
    for trial in trials:
        seen, since = 0, time.monotonic()
        while time.monotonic() - since < TIMEOUT:
            record, held = store.read(trial.id), store.locked(trial.id)
            if record is not None and not held and (record.final or (seen and _has_given_up(record))):
                break
            if record is not None and held and record.status == records.RUNNING and record.attempts > seen:
                seen = record.attempts
                if nodes_of([trial]) > 1:
                    _train(trial, store)
            if held:
                since = time.monotonic()
            time.sleep(POLL)


def _has_given_up(record: Record) -> bool:
    return record.status in (records.FAILED, records.INTERRUPTED)


def _train(trial: Trial, store: Store) -> None:
    from swapformer.training.torchrun import run_ranks

    task = {"config": dict(trial.config), "final": True}
    report = run_ranks(task, store.directory(trial.id), trial.config["trainer"])
    if report.get("outcome", {}).get("status") == records.INTERRUPTED:
        raise KeyboardInterrupt
