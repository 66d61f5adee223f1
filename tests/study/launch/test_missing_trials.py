"""Limits of time and of retries: they end what would go on for ever, and say so."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from study import fakes
from study.parents import read, statuses
from swapformer.errors import UsageError
from swapformer.results.store import Store
from swapformer.study.launch.local import LocalLauncher
from swapformer.study.launch.missing_trials import launch_missing
from swapformer.study.launch.trial import Trial

SECOND = 1 / 60
"""In minutes."""


def launcher(store: Store, time_limit: float | None = None) -> LocalLauncher:
    return LocalLauncher(store, fakes.PROVENANCE, 2, fakes.WORK, time_limit=time_limit)


def test_a_trial_that_runs_into_the_limit_is_interrupted_once_and_goes_on_when_asked_again(
    store: Store, journal: Path
) -> None:
    trials = [fakes.trial(journal, 0, "hang once"), fakes.trial(journal, 1)]
    started = time.monotonic()
    launch_missing(trials, store, launcher(store, 4 * SECOND))
    assert time.monotonic() - started < 20
    assert statuses(trials, store) == ["interrupted", "finished"]
    assert read(store, trials[0].id).reason == "it ran into the time limit of 0.0666667 minutes"
    assert Counter(fakes.runs(journal))[trials[0].id] == 1, "it is not tried for ever"
    launch_missing(trials, store, launcher(store, 4 * SECOND))
    assert statuses(trials, store) == ["finished", "finished"]
    record = read(store, trials[0].id)
    assert record.attempts == 2
    assert record.notes == ("attempt 1 interrupted: it ran into the time limit of 0.0666667 minutes",)


def test_a_trial_that_does_not_stop_at_the_limit_is_killed_and_not_retried(
    store: Store, journal: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("swapformer.study.launch.child.GRACE", 0.5)
    trials = [fakes.trial(journal, 0, "deaf")]
    launch_missing(trials, store, launcher(store, 4 * SECOND))
    assert statuses(trials, store) == ["interrupted"]
    reason = read(store, trials[0].id).reason
    assert reason is not None and reason.endswith("minutes, did not stop within 0.5 s, and was killed")
    assert len(fakes.runs(journal)) == 1


@pytest.mark.evidence
def test_a_probe_that_runs_into_the_limit_leaves_the_training_finished_and_a_note(store: Store, journal: Path) -> None:
    trial = fakes.trial(journal, probes={"slow": "slow"})
    launch_missing([trial], store, launcher(store, 4 * SECOND))
    record = read(store, trial.id)
    assert (record.status, statuses([trial], store)) == ("finished", ["failed"])
    assert record.notes == ("probes: it ran into the time limit of 0.0666667 minutes",)


def test_a_trial_that_another_process_trained_meanwhile_gets_the_probes_of_this_one(
    store: Store, journal: Path
) -> None:
    """Two studies share a trial and start it at once: the one that comes too late asks its own probes afterwards."""
    alone, mine = fakes.trial(journal), fakes.trial(journal, probes={"similarity": "whole"})
    assert alone.id == mine.id
    own = launcher(store)

    def launch(trials: Sequence[Trial]) -> None:
        if store.read(mine.id) is None:
            launch_missing([alone], store, launcher(store))  # while ours waits for the lock, and gives up
        else:
            own(trials)

    launch_missing([mine], store, launch)
    assert statuses([mine], store) == ["finished"] and len(fakes.runs(journal)) == 1


@pytest.mark.parametrize("retries", [0, 2])
def test_a_killed_trial_is_retried_as_often_as_asked_and_nothing_else_is(
    store: Store, journal: Path, retries: int
) -> None:
    behaviours = ["killed", "diverge", "fail", "misuse", "exit", "finish"]
    trials = [fakes.trial(journal, seed, behaviour) for seed, behaviour in enumerate(behaviours)]
    launch_missing(trials, store, launcher(store), retries=retries)
    attempts = Counter(fakes.runs(journal))
    assert [attempts[trial.id] for trial in trials] == [1 + retries, 1, 1, 1, 1, 1]
    killed = read(store, trials[0].id)
    assert killed.attempts == 1 + retries
    assert [note.partition(":")[0] for note in killed.notes] == [f"attempt {n} killed" for n in range(1, 1 + retries)]


def test_settings_without_sense_are_refused(store: Store, journal: Path, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(UsageError, match=r"launcher.time_limit` must be a number above 0"):
        launcher(store, 0)
    with (
        pytest.raises(UsageError, match="retries` must be a whole number of at least 0"),
        caplog.at_level(logging.INFO),
    ):
        launch_missing([fakes.trial(journal)], store, launcher(store), retries=-1)
    assert fakes.runs(journal) == []
