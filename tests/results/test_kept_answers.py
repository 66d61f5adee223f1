"""A report that is asked again: read where nothing changed, built where anything did."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from report.store import Store
from swapformer.report.build import build
from swapformer.results import kept_answers, stamps
from swapformer.results.kept_answers import (
    FinishedRun,
    read_finished_run,
    read_kept_report,
    report_path,
    write_finished_run,
    write_kept_report,
)
from swapformer.results.stamps import Stamps

PROGRAM = ["as it was"]


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    monkeypatch.setattr(stamps, "SETTLED", 0)
    monkeypatch.setattr(kept_answers, "program", lambda: Stamps().add(*PROGRAM))
    made = Store(tmp_path, {"a": [], "b": ["x=1"]}, "a", ["val/loss"], range(2))
    made.write(lambda arm, seed: {"val/loss": 2.0 + seed / 10 + (arm == "b") / 20})
    return made


def replace(path: Path, before: str, after: str) -> None:
    text = path.read_text()
    assert before in text
    path.write_text(text.replace(before, after))


CHANGES: dict[str, Callable[[Store], object]] = {
    "a record": lambda store: replace(store.directory("b", 1) / "record.json", '"steps": 2000', '"steps": 2001'),
    "a probe's artifact": lambda store: (store.directory("a", 0) / "artifacts").mkdir(),
    "a history": lambda store: (store.directory("a", 0) / "metrics.csv").write_text("step,name,value\n"),
    "the manifest": lambda store: replace(store.study / "manifest.json", "Does it matter?", "Does it help?"),
    "costs": lambda store: (store.study / "costs.json").write_text("{}"),
    "a trial is gone": lambda store: (store.directory("a", 1) / "record.json").unlink(),
    "a figure is gone": lambda store: next((store.study / "report").glob("*.svg")).unlink(),
    "the page was edited": lambda store: (store.study / "report" / "report.html").write_text("mine"),
    "damage": lambda store: report_path(store.study).write_text("{"),
    "an older version": lambda store: replace(report_path(store.study), '"written"', '"wrote"'),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_report_is_kept_until_anything_that_it_was_made_of_changes(change: str, store: Store) -> None:
    built = build(store.study, store.runs)
    kept = read_kept_report(store.study, store.runs)
    assert kept is not None and kept == built.kept
    assert kept.plain == json.loads(json.dumps(built.as_dict()))
    CHANGES[change](store)
    assert read_kept_report(store.study, store.runs) is None


def test_another_program_builds_anew(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    build(store.study, store.runs)
    monkeypatch.setattr(kept_answers, "program", lambda: Stamps().add("edited"))
    assert read_kept_report(store.study, store.runs) is None


def test_a_manifest_that_is_written_again_as_it_was_is_no_change(store: Store) -> None:
    build(store.study, store.runs)
    path = store.study / "manifest.json"
    path.write_text(path.read_text())
    assert read_kept_report(store.study, store.runs) is not None


def test_an_incomplete_report_and_one_of_a_moment_ago_are_not_kept(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.write_trial("a", 1, {}, status="failed")
    assert build(store.study, store.runs).kept is None and read_kept_report(store.study, store.runs) is None
    store.write_trial("a", 1, {"val/loss": 2.1})
    monkeypatch.setattr(stamps, "SETTLED", 10**15)
    assert build(store.study, store.runs).kept is None and read_kept_report(store.study, store.runs) is None


def test_texts_are_kept_by_width_while_the_report_says_the_same(store: Store) -> None:
    kept = build(store.study, store.runs).kept
    assert kept is not None
    for width in range(80, 80 + kept_answers.WIDTHS + 1):
        kept = kept.with_text(width, f"at {width}")
    write_kept_report(store.study, kept)
    again = build(store.study, store.runs).kept
    assert again is not None and list(again.texts) == ["81", "82", "83", "84"]
    replace(store.directory("b", 1) / "record.json", '"steps": 2000', '"steps": 2001')
    anew = build(store.study, store.runs).kept
    assert anew is not None and anew.texts == {}


def test_a_finished_run_is_read_as_it_was_written(tmp_path: Path) -> None:
    run = FinishedRun("asked", ("/a", "/b"), "made", {"finished": 3, "diverged": 1})
    assert read_finished_run(tmp_path) is None
    write_finished_run(tmp_path, run)
    assert read_finished_run(tmp_path) == run
