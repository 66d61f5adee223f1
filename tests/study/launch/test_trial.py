"""One trial from claim to record, with a training that does what the test asks."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from wandb.sdk.lib.exit_hooks import ExitHooks

from study import fakes
from swapformer.errors import UsageError
from swapformer.results.record import Record
from swapformer.results.store import Store
from swapformer.study.launch.child import Child
from swapformer.study.launch.trial import Trial, Work, execute, is_complete


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "runs")


def run(trial: Trial, store: Store) -> str:
    record = execute(trial, store, fakes.PROVENANCE, fakes.WORK)
    assert record is not None
    assert record == store.read(trial.id)
    return record.status


def test_a_finished_trial_leaves_its_config_and_a_whole_record(store: Store, journal: Path) -> None:
    trial = fakes.trial(journal, seed=3)
    assert run(trial, store) == "finished"
    record = store.read(trial.id)
    assert record is not None
    assert yaml.safe_load((store.directory(trial.id) / "config.yaml").read_text()) == trial.config
    assert record.metrics == {"val/loss": 4.0}
    assert record.directions == {"val/loss": "lower"}
    assert (record.seed, record.steps, record.tokens, record.attempts, record.results_epoch) == (3, 10, 640, 1, 1)
    assert record.environment == {"device": "cpu"} and record.machine["python"]
    assert record.git == {"commit": "abc", "dirty": False}
    assert record.data == {"fingerprint": "d4"}
    assert record.ended is not None and record.started <= record.ended


@pytest.mark.parametrize("behaviour", ["finish", "diverge"])
def test_a_trial_with_a_result_is_reused(store: Store, journal: Path, behaviour: str) -> None:
    trial = fakes.trial(journal, behaviour=behaviour)
    assert run(trial, store) == run(trial, store)
    assert len(fakes.runs(journal)) == 1


def test_a_diverged_trial_says_why_and_has_no_number(store: Store, journal: Path) -> None:
    trial = fakes.trial(journal, behaviour="diverge")
    assert run(trial, store) == "diverged"
    record = store.read(trial.id)
    assert record is not None and record.reason == "loss is nan" and record.metrics == {}


def test_a_failed_trial_says_where_and_starts_anew_when_asked_again(store: Store, journal: Path) -> None:
    trial = fakes.trial(journal, behaviour="fail")
    assert run(trial, store) == "failed"
    record = store.read(trial.id)
    assert record is not None and record.reason is not None
    assert record.reason.startswith("RuntimeError: no such luck [fakes.py:")
    assert run(trial, store) == "failed"
    assert "resumed" not in journal.read_text()
    assert len(fakes.runs(journal)) == 2


def test_wrong_use_found_while_training_is_recorded_and_raised(store: Store, journal: Path) -> None:
    trial = fakes.trial(journal, behaviour="misuse")
    with pytest.raises(UsageError, match="the file is empty"):
        execute(trial, store, fakes.PROVENANCE, fakes.WORK)
    record = store.read(trial.id)
    assert record is not None and (record.status, record.reason) == ("failed", "the file is empty")


def test_a_part_that_calls_sys_exit_makes_its_trial_fail_instead_of_interrupting_it_for_ever(
    store: Store, journal: Path
) -> None:
    trial = fakes.trial(journal, behaviour="quit")
    assert run(trial, store) == "failed"
    record = store.read(trial.id)
    assert record is not None and record.reason is not None
    assert record.reason.startswith("SystemExit: 0 [fakes.py:") and "called sys.exit" in record.reason


def test_where_sys_exit_was_called_is_said_though_wandb_has_wrapped_it(
    store: Store, journal: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "exit", sys.exit)  # put back afterwards
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    ExitHooks().hook()
    trial = fakes.trial(journal, behaviour="quit")
    assert run(trial, store) == "failed"
    record = store.read(trial.id)
    assert record is not None and record.reason is not None and record.reason.startswith("SystemExit: 0 [fakes.py:")


def test_a_probe_that_calls_sys_exit_is_noted_like_any_other_failure(store: Store, journal: Path) -> None:
    trial = fakes.trial(journal, probes={"heads": {"batches": 1}})
    work = replace(fakes.WORK, replay=lambda config, folder: sys.exit(3))
    record = execute(trial, store, fakes.PROVENANCE, work)
    assert record is not None and record.status == "finished"
    assert any(note.startswith("probes heads: SystemExit: 3") for note in record.notes)


def test_an_interrupted_trial_is_resumed_and_keeps_its_time(store: Store, journal: Path) -> None:
    trial = fakes.trial(journal, behaviour="exit")
    assert run(trial, store) == "interrupted"
    first = store.read(trial.id)
    assert run(trial, store) == "interrupted"
    second = store.read(trial.id)
    assert [line.split()[2] for line in journal.read_text().splitlines()] == ["new", "resumed"]
    assert first is not None and second is not None
    assert (second.attempts, second.started) == (2, first.started)
    assert second.seconds >= first.seconds


@pytest.mark.parametrize("known", [False, True])
def test_a_killed_trial_keeps_the_time_up_to_its_last_checkpoint(store: Store, journal: Path, known: bool) -> None:
    """Its record is of its start: whether its launcher has said that it was killed (`known`), or nobody."""
    trial = fakes.trial(journal)
    folder = store.directory(trial.id)
    (folder / "checkpoints").mkdir(parents=True)
    store.write(Record(trial.id, "running", seed=0, seconds=7.0, attempts=1))
    for path, age in ((folder / "record.json", 100), (folder / "checkpoints" / "last.ckpt", 60)):
        path.touch()
        os.utime(path, (time.time() - age,) * 2)
    if known:
        child = object.__new__(Child)
        child.trial, child.why = trial, None
        store.write(
            child._completed(Record(trial.id, "running", seed=0, seconds=7.0, attempts=1), -signal.SIGKILL, store)
        )
    assert run(trial, store) == "finished"
    found = store.read(trial.id)
    assert found is not None and found.attempts == 2 and 46.9 < found.seconds < 57


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_a_trial_as_interrupted(store: Store, journal: Path, number: signal.Signals) -> None:
    trial = fakes.trial(journal, behaviour="hang")
    before = {n: signal.getsignal(n) for n in (signal.SIGTERM, signal.SIGINT)}

    def send() -> None:
        while not journal.exists():
            time.sleep(0.01)
        os.kill(os.getpid(), number)

    sender = threading.Thread(target=send)
    sender.start()
    assert run(trial, store) == "interrupted"
    sender.join()
    assert {n: signal.getsignal(n) for n in before} == before
    assert not store.locked(trial.id)


def test_a_corrupt_checkpoint_is_set_aside_and_the_trial_trained_anew(store: Store, journal: Path) -> None:
    trial = fakes.trial(journal)
    folder = store.directory(trial.id)
    (folder / "checkpoints").mkdir(parents=True)
    (folder / "checkpoints" / "last.ckpt").write_text("garbage")
    (folder / "metrics.csv").write_text("step,name,value\n5,train/loss,9\n")
    assert run(trial, store) == "finished"
    assert (folder / "checkpoints.corrupt-1" / "last.ckpt").read_text() == "garbage"
    assert not (folder / "metrics.csv").exists()
    record = store.read(trial.id)
    assert record is not None and "corrupt checkpoint set aside" in record.notes[0]


def test_probes_asked_for_later_are_replayed_without_training(store: Store, journal: Path) -> None:
    assert run(fakes.trial(journal), store) == "finished"
    later = fakes.trial(journal, probes={"similarity": "whole"})
    assert not is_complete(later, store, store.read(later.id))
    assert run(later, store) == "finished"
    assert is_complete(later, store, store.read(later.id))
    assert len(fakes.runs(journal)) == 1


def test_a_probe_that_fails_is_noted_and_the_training_stays_finished(store: Store, journal: Path) -> None:
    trial = fakes.trial(journal, probes={"similarity": "broken"})
    assert run(trial, store) == "finished"
    record = store.read(trial.id)
    assert record is not None and "RuntimeError: no checkpoint" in record.notes[0]
    assert not is_complete(trial, store, record)


def test_the_note_of_a_failure_goes_when_the_probe_succeeds_and_others_stay(store: Store, journal: Path) -> None:
    trial = fakes.trial(journal, probes={"similarity": "broken"})
    run(trial, store)
    record = store.read(trial.id)
    assert record is not None
    store.write(record.but(notes=(*record.notes, "probes heads: no memory", "the disk was full")))
    mended = Work(fakes.fit, lambda _, folder: fakes.replay({"probes": {"similarity": 1}}, folder), OSError)
    record = execute(trial, store, fakes.PROVENANCE, mended)
    assert record is not None and record.notes == ("probes heads: no memory", "the disk was full")


def test_a_trial_that_another_process_holds_is_left_alone(store: Store, journal: Path) -> None:
    trial = fakes.trial(journal)
    with store.lock(trial.id):
        assert execute(trial, Store(store.runs_dir), fakes.PROVENANCE, fakes.WORK) is None
    assert fakes.runs(journal) == []
