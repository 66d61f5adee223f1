"""Following trials by their files, and a process that may crash or hang without anybody having to wait for it."""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from mirror.destinations import Memory
from mirror.readback import curves_of
from swapformer.mirror import process as process_module
from swapformer.mirror.follower import Follower, Target
from swapformer.mirror.process import mirror_trials
from swapformer.results.record import Record
from swapformer.results.shapes import Matrix, Table, to_json
from swapformer.results.store import Store

ID = "0123456789abcdef"
HEAD = "step,name,value\n"
ROWS = ["10,train/loss,3.0\n", "10,val/loss,3.5\n", "20,train/loss,2.0\n", "20,val/loss,2.5\n", "30,train/loss,nan\n"]


@pytest.fixture
def store(tmp_path: Path) -> Store:
    found = Store(tmp_path)
    found.prepare()
    found.directory(ID).mkdir()
    return found


def follower(store: Store, place: Memory, said: list[str]) -> Follower:
    return Follower([Target(ID)], store, place, store.runs_dir / "mirror", said.append)


def test_a_trial_is_shown_while_it_runs_and_closed_as_it_ended(store: Store) -> None:
    place, said = Memory(), list[str]()
    path = store.directory(ID) / "metrics.csv"
    watching = follower(store, place, said)
    watching.poll()
    assert place.pages == [], "it has not begun"
    with store.lock(ID):
        store.write(Record(ID, "running", attempts=1))
        path.write_text(HEAD + ROWS[0])
        watching.poll()
        assert place.curves == {(10, "train/loss"): 3.0} and place.endings == []
        path.write_text(HEAD + "".join(ROWS[:4]))
        (store.directory(ID) / "artifacts").mkdir()
        heads = Matrix("t", "c", ["1", "2"], ["1", "2"], [[1.0, 0.0], [0.5, 1.0]])
        found = {
            "metrics": {"probe/x": 0.5},
            "shapes": {"heads": to_json(heads), "one": to_json(Table("t", "c", [], []))},
        }
        (store.directory(ID) / "artifacts" / "similarity.json").write_text(json.dumps(found))
        store.write(Record(ID, "finished", attempts=1, ended="2030"))
        watching.poll()
        assert place.endings == [], "its process may still write"
    watching.poll()
    watching.poll()
    assert place.endings == [("finished", {"probe/x": 0.5}, ["probe/similarity/heads"])]
    assert place.curves == curves_of(path) and place.pieces == len(place.curves) and said == []


def test_a_run_that_breaks_is_begun_again_with_the_whole_history_but_not_for_ever(store: Store) -> None:
    store.write(Record(ID, "finished", attempts=1))
    (store.directory(ID) / "metrics.csv").write_text(HEAD + "".join(ROWS[:4]))
    for failing, endings in ((1, 1), (9, 0)):
        place, said = Memory(failing=failing), list[str]()
        watching = follower(store, place, said)
        for _ in range(4):
            watching.poll()
        assert len(place.endings) == endings and len(place.pages) == 2
        assert said == ["ConnectionError: gone"] * min(failing, 2)
        (store.runs_dir / "mirror" / Memory().folder_name / f"{ID}.json").unlink()


def test_a_trial_whose_logger_lost_what_a_thread_wrote_is_not_shown_and_is_tried_again(store: Store) -> None:
    store.write(Record(ID, "finished", attempts=1))
    (store.directory(ID) / "metrics.csv").write_text(HEAD + ROWS[0])
    place, said = Memory(), list[str]()
    watching = follower(store, place, said)
    watching.thread_errors.append(OSError("no space left"))
    watching.poll()
    assert said == [f"RuntimeError: trial {ID} is not shown: no space left"]
    watching.poll()
    watching.poll()
    assert len(place.pages) == 2 and len(said) == 1


def test_two_mirrors_do_not_write_one_run(store: Store) -> None:
    first, second = Memory(), Memory()
    with store.lock(ID):
        store.write(Record(ID, "running", attempts=1))
        one, other = follower(store, first, []), follower(store, second, [])
        one.poll()
        other.poll()
    assert (len(first.pages), len(second.pages)) == (1, 0)
    one.close()
    other.poll()
    assert len(second.pages) == 1, "the first has let go"


@pytest.mark.parametrize(
    ("settings", "patience", "word"),
    [
        pytest.param({"hang": 600.0}, 0.1, "stopped making headway", marks=pytest.mark.evidence),
        ({"nonsense": 1}, 60.0, "exit status"),
    ],
)
def test_a_mirror_that_hangs_or_crashes_is_named_once_and_ended_with(
    store: Store, settings: dict[str, float], patience: float, word: str, caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """What crashes is noticed at once, however patient the command is; what hangs, after its patience."""
    tests = Path(__file__).parents[1]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tests), os.environ.get("PYTHONPATH", "")]))
    monkeypatch.setenv("SWAPFORMER_PACKAGES", "mirror")
    monkeypatch.setattr("swapformer.mirror.process.make_destination", lambda node: Memory(patience=patience))
    store.write(Record(ID, "finished", attempts=1))
    config = {"logger": {"_target_": "mirror.destinations.Memory", **settings}}
    with caplog.at_level(logging.WARNING), mirror_trials([(Target(ID), config)], store):
        started = time.monotonic()
    assert time.monotonic() - started < 30, "not the ten minutes that it hangs, and not ten times its patience and more"
    assert caplog.text.count("mirror:") == 1 and word in caplog.text


def test_a_mirror_that_is_killed_is_named_with_what_completes_it(
    store: Store, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S10 of the review: the command ended with status 0, and nothing was said."""
    started: list[subprocess.Popen[bytes]] = []
    start = process_module._start

    def remembered(*arguments: Any) -> Any:
        started.append(start(*arguments))
        return started[-1]

    monkeypatch.setattr(process_module, "_start", remembered)
    monkeypatch.setattr("swapformer.mirror.process.make_destination", lambda node: Memory(patience=60.0))
    config = {"logger": {"_target_": "mirror.destinations.Memory"}}
    with caplog.at_level(logging.WARNING), mirror_trials([(Target(ID), config)], store):
        os.kill(started[0].pid, signal.SIGKILL)
    assert "mirror: it was killed by SIGKILL; the same command again shows what is lacking" in caplog.text


def test_a_problem_is_told_as_it_was_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """With its full stop, and without the dots of headway around it."""
    said = "..\nRuntimeError: the disk is full.\n.\n."
    code = f"import sys; sys.stdin.read(); sys.stdout.write({said!r})"
    process = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    with caplog.at_level(logging.WARNING):
        process_module._end(process, 60.0, tmp_path)
    assert caplog.messages == ["mirror: RuntimeError: the disk is full."]


def test_without_a_logger_no_process_is_started(store: Store) -> None:
    with mirror_trials([(Target(ID), {"logger": {}}), (Target(ID), {})], store):
        pass
    assert not (store.runs_dir / "mirror").exists()


def manifest(store: Store, cells: list[dict[str, object]]) -> None:
    folder = store.studies / "heads"
    folder.mkdir(parents=True, exist_ok=True)
    plain = {"name": "heads", "baseline": "h8", "arms": {"h8": [], "h4": []}, "seeds": [0], "metrics": ["val/loss"]}
    draft = folder / "draft"
    draft.write_text(json.dumps(plain | {"cells": cells, "conditions": {"size=nano": {"size": "nano"}}}))
    draft.replace(folder / "manifest.json")


def test_a_trial_of_a_study_is_shown_once_the_study_has_come_to_report_it(store: Store) -> None:
    """A study that tunes decides as it goes: the trial of another setting may be in the store from elsewhere."""
    place, said = Memory(), list[str]()
    targets = [Target(ID, "heads", "h8", "size=nano"), Target(ID, "heads", "h4", "size=nano")]
    watching = Follower(targets, store, place, store.runs_dir / "mirror", said.append)
    (store.directory(ID) / "metrics.csv").write_text(HEAD + ROWS[0])
    store.write(Record(ID, "finished", attempts=1))
    for cells in ([], [{"arm": "h8", "seed": 0, "trial": ID, "condition": "size=nano"}]):
        manifest(store, cells)
        watching.poll()
        assert [(page.arm, page.condition) for page in place.pages] == [("h8", "size=nano")] * len(cells)
    assert place.pages[0].cells == ["heads/h8 with size=nano"] and said == []


def shown(store: Store, monkeypatch: pytest.MonkeyPatch) -> str:
    """What a real process has written of a trial of a study."""
    tests, diary = Path(__file__).parents[1], store.runs_dir / "diary"
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tests), os.environ.get("PYTHONPATH", "")]))
    monkeypatch.setenv("SWAPFORMER_PACKAGES", "mirror")
    (store.directory(ID) / "metrics.csv").write_text(HEAD + ROWS[0])
    store.write(Record(ID, "finished", attempts=1))
    manifest(store, [{"arm": "h8", "seed": 0, "trial": ID, "condition": "size=nano"}])
    config = {"logger": {"_target_": "mirror.destinations.Memory", "diary": str(diary), "patience": 30.0}}
    with mirror_trials([(Target(ID, "heads", "h8", "size=nano"), config)], store):
        pass
    return diary.read_text()


def test_the_process_is_told_the_whole_of_what_it_shows_and_takes_no_file_beside_it_for_a_module_of_python(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "here"
    place.mkdir()
    (place / "queue.py").write_text("raise ImportError('not the queue of Python')")
    monkeypatch.chdir(place)
    assert shown(store, monkeypatch) == "heads/h8 with size=nano\n"
