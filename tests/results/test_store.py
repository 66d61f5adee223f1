"""The store: atomic, locked, and not to be fooled by what a crash leaves."""

from __future__ import annotations

import errno
import json
import logging
import os
import time
from pathlib import Path

import pytest

from swapformer.errors import UsageError
from swapformer.results import files
from swapformer.results import lock as locks
from swapformer.results.record import SCHEMA_VERSION, Record, parse
from swapformer.results.store import Store

ID = "0123456789abcdef"


@pytest.fixture
def store(tmp_path: Path) -> Store:
    found = Store(tmp_path / "runs")
    found.prepare()
    found.directory(ID).mkdir()
    return found


def status(store: Store) -> str:
    found = store.read(ID)
    assert found is not None
    return found.status


def test_a_record_comes_back_as_it_was_written(store: Store) -> None:
    record = Record(ID, "finished", seed=0, metrics={"val/loss": 1.5}, notes=("a probe failed",), attempts=2)
    store.write(record)
    assert store.read(ID) == record
    assert json.loads((store.directory(ID) / "record.json").read_bytes())["schema_version"] == SCHEMA_VERSION


@pytest.mark.parametrize(
    ("before", "after"),
    [("1.5", "2.5"), ('"lower"', '"higher"'), ('"finished"', '"diverged"'), ('"counting": 3.0', '"counting": 9.0')],
)
def test_a_result_that_is_changed_by_hand_is_noticed(store: Store, before: str, after: str) -> None:
    record = Record(
        ID, "finished", seed=0, metrics={"val/loss": 1.5}, directions={"val/loss": "lower"},
        baselines={"val/loss": {"counting": 3.0}},
    )  # fmt: skip
    store.write(record)
    path = store.directory(ID) / "record.json"
    assert before in path.read_text()
    path.write_text(path.read_text().replace(before, after, 1))
    found = store.peek(ID)
    assert found is not None and found.status == "corrupt" and "not those that were written" in (found.reason or "")


def test_a_record_of_before_there_was_a_sum_is_read(store: Store) -> None:
    content = json.loads(Record(ID, "finished", seed=0, metrics={"val/loss": 1.5}).to_json())
    del content["check"]
    assert parse(json.dumps(content).encode(), ID).metrics == {"val/loss": 1.5}
    content["metrics"]["val/loss"] = 1e999
    with pytest.raises(files.CorruptFile, match="must hold finite numbers"):
        parse(json.dumps(content).encode(), ID)


def test_numbers_that_are_not_finite_are_left_out_of_the_record(store: Store) -> None:
    store.write(Record(ID, "diverged", metrics={"val/loss": float("nan"), "val/accuracy": 0.25}))
    found = store.read(ID)
    assert found is not None and found.metrics == {"val/accuracy": 0.25}


def test_a_record_cut_off_anywhere_is_set_aside_and_the_trial_counts_as_missing(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    path = store.directory(ID) / "record.json"
    whole = Record(ID, "finished", seed=0, metrics={"val/loss": 1.5}).to_json().encode()
    cuts = range(0, len(whole.rstrip()), 7)  # all but the last brace and newline are needed
    with caplog.at_level(logging.WARNING):
        for number, cut in enumerate(cuts, 1):
            path.write_bytes(whole[:cut])
            assert status(store) == "corrupt" and path.exists(), "reading writes nothing"
            with store.lock(ID):
                store.repair(ID)
            assert store.read(ID) is None
            assert path.with_name(f"record.json.corrupt-{number}").read_bytes() == whole[:cut]
    assert caplog.text.count("set aside") == len(cuts)
    assert not path.exists()


def test_a_record_of_a_version_that_took_over_steps_of_other_trials_is_read(store: Store) -> None:
    record = Record(ID, "finished", seed=0, metrics={"val/loss": 1.5}, steps=9)
    older = {**json.loads(record.to_json()), "taken_over": {"trial": "a", "steps": 3, "seconds": 1.0}}
    (store.directory(ID) / "record.json").write_text(json.dumps(older))
    assert store.read(ID) == record


@pytest.mark.parametrize(
    "damage",
    [
        b"\x00" * 200,
        b"[]",
        b"{}",
        b"[" * 100_000,
        b'{"schema_version": 1}',
        b'{"schema_version": 0, "id": "0123456789abcdef", "status": "finished"}',
        b'{"schema_version": 1, "id": "0123456789abcdef", "status": "finished", "environment": "cpu"}',
        b'{"schema_version": 1, "id": "fedcba9876543210", "status": "finished"}',
        b'{"schema_version": 1, "id": "0123456789abcdef", "status": "done"}',
        b'{"schema_version": 1, "id": "0123456789abcdef", "status": "finished", "metrics": {"val/loss": "1"}}',
        b'{"schema_version": 2, "id": "0123456789abcdef", "status": "finished"}',
        b'{"schema_version": 2, "id": "0123456789abcdef", "status": "running", "parameters": 3}',
        b'{"schema_version": 2, "id": "0123456789abcdef", "status": "running", "started": null}',
        b'{"schema_version": 2, "id": "0123456789abcdef", "status": "running", "reason": {}}',
        b'{"schema_version": 2, "id": "0123456789abcdef", "status": "running", "attempts": true}',
        b'{"schema_version": 2, "id": "0123456789abcdef", "status": "running", "seconds": NaN}',
    ],
)
def test_what_is_no_record_of_this_trial_is_set_aside(store: Store, damage: bytes) -> None:
    (store.directory(ID) / "record.json").write_bytes(damage)
    assert status(store) == "corrupt"
    with store.lock(ID):
        store.repair(ID)
    assert store.read(ID) is None
    assert (store.directory(ID) / "record.json.corrupt-1").read_bytes() == damage


def test_a_record_of_a_newer_version_is_refused_and_left_alone(store: Store) -> None:
    path = store.directory(ID) / "record.json"
    path.write_text('{"schema_version": 99}')
    assert status(store) == "corrupt", "a list names it and goes on"
    with store.lock(ID), pytest.raises(UsageError, match="update swapformer"):
        store.repair(ID)
    assert path.exists()


def test_a_crash_while_writing_leaves_the_old_record_whole(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    store.write(Record(ID, "interrupted"))

    def power_cut(source: object, target: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(files.os, "replace", power_cut)
        with pytest.raises(KeyboardInterrupt):
            store.write(Record(ID, "finished"))
    found = store.read(ID)
    assert found is not None and found.status == "interrupted"
    with store.lock(ID):  # the next holder clears up
        assert not list(store.directory(ID).glob(".tmp-*"))


def test_writers_with_the_same_number_of_process_do_not_share_a_temporary_file(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in containers, where each is the first process; another host is as good as another thread."""
    replace, path = os.replace, store.directory(ID) / "record.json"
    seen: list[str] = []

    def meanwhile(source: Path, target: Path) -> None:
        seen.append(source.name)
        if len(seen) == 1:
            files.write_atomic(path, "another's")
            store.prepare()
        replace(source, target)

    monkeypatch.setattr(files.os, "replace", meanwhile)
    files.write_atomic(path, "ours")
    assert path.read_text() == "ours"
    assert len(set(seen)) == 2
    monkeypatch.setattr(locks, "BEAT", 0.01)
    for holders in (1, 2):
        with store.lock(ID):
            deadline = time.monotonic() + 5
            while len(set(seen)) < 2 + holders:
                assert time.monotonic() < deadline
                time.sleep(0.01)
    assert all(name.startswith(files.TEMPORARY) for name in seen)
    assert not list(store.runs_dir.rglob(f"{files.TEMPORARY}*"))


def test_a_file_that_cannot_be_written_is_named_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(files.os, "fsync", full)
    with pytest.raises(OSError, match="No space left") as raised:
        files.write_atomic(tmp_path / "manifest.json", "{}")
    assert raised.value.filename == str(tmp_path / "manifest.json")
    assert list(tmp_path.iterdir()) == []


def test_a_runs_dir_that_cannot_be_written_is_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="runs_dir must be a directory that can be written"):
        Store(Path("/proc/nowhere")).prepare()  # permissions would not stop root, this does


@pytest.mark.parametrize("place", ["file", "file/below", "."])
def test_a_store_is_not_opened_where_a_file_stands(tmp_path: Path, place: str) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "trials").touch()
    with pytest.raises(UsageError, match=r"runs_dir must be a directory .* \(Not a directory\)"):
        Store(tmp_path / place)


def test_a_store_exists_once_something_was_run_in_it(tmp_path: Path) -> None:
    store = Store(tmp_path)
    assert not store.exists and store.records() == []
    store.prepare()
    assert store.exists


def test_a_trial_is_found_by_the_beginning_of_its_id(store: Store) -> None:
    store.write(Record(ID, "finished"))
    assert store.find("0123").id == ID
    store.directory("0123ffffffffffff").mkdir()
    with pytest.raises(UsageError, match="fits 2 trials"):
        store.find("0123")
    with pytest.raises(UsageError, match="no trial 'ff'"):
        store.find("ff")


def test_listing_reads_each_finished_record_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What lets a store of ten thousand trials be listed in seconds (the time itself depends on the machine)."""
    store = Store(tmp_path)
    store.prepare()
    for number in range(20):
        trial = f"{number:016x}"
        store.directory(trial).mkdir()
        store.write(Record(trial, "finished", seed=number, started=f"2030-01-{number + 1:02}"))
    (tmp_path / "trials" / "stray").touch()
    read: list[Path] = []
    original = Path.read_bytes
    monkeypatch.setattr(Path, "read_bytes", lambda path: read.append(path) or original(path))
    assert [record.seed for record in store.records()] == list(range(20))
    assert len(read) == 20


def test_a_record_of_the_version_before_is_read_as_one_of_today_and_written_as_such(store: Store) -> None:
    """Version 1 kept the machine among what trials must share to be compared; its file is what version 1 wrote."""
    shared = {"device": "cpu", "torch": "2.13.0", "threads": 1, "deterministic": True}
    machine = {"python": "3.11.7", "lightning": "2.6.6", "platform": "Linux", "host": "elsewhere"}
    old = {
        "schema_version": 1,
        "id": ID,
        "status": "finished",
        "seed": 3,
        "metrics": {},
        "environment": {**shared, **machine},
    }
    path = store.directory(ID) / "record.json"
    path.write_text(json.dumps(old))
    record = store.read(ID)
    assert record is not None
    assert (record.status, record.seed, record.environment, record.machine) == ("finished", 3, shared, machine)
    assert json.loads(path.read_text()) == old, "reading writes nothing"
    store.write(record)
    assert json.loads(path.read_text())["schema_version"] == SCHEMA_VERSION
    assert store.read(ID) == record


def test_unknown_fields_of_a_record_are_ignored() -> None:
    text = b'{"schema_version": 1, "id": "0123456789abcdef", "status": "finished", "metrics": {}, "later": 1}'
    assert parse(text, ID).status == "finished"
