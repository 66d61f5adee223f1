"""A damaged store: every file of a trial and of a study in every way, against every command that reads it.

Each case is a command that must end in one line and status 2, or, where it lists, in status 0 with the damaged trial
named; nothing that is stored may change. What `study` does about the damage is held at the end.
"""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from evidence.fuzz import template
from evidence.fuzz.damages import CHECKPOINTS, DAMAGES, STUDY_FILES, TRIAL_FILES, wrong_types
from evidence.fuzz.damages import place as find
from evidence.fuzz.judge import CHANGED, CLEAR, FAULTS, TRACEBACK, UNCLEAR, WORKED, judge, run
from study import fakes
from swapformer.report.records import read
from swapformer.results import schema
from swapformer.results.record import CORRUPT, FINISHED, RUNNING, Record
from swapformer.results.store import Store
from swapformer.study.config.compose import resolve_source
from swapformer.study.expand import expand
from swapformer.study.launch.missing_trials import launch_missing
from swapformer.study.launch.provenance import current_provenance
from swapformer.study.launch.trial import execute
from swapformer.study.spec import load
from swapformer.training.weights import restore

READ_RECORD = ("record.json", ".")
"""What a list of trials reads."""


class Place:
    """A folder with a store in it whose first trial, or whose study, is damaged by a test."""

    def __init__(self, folder: Path, whole: Path, trials: list[str]) -> None:
        self.folder, self.whole, self.trials = folder, whole, trials
        self.bad = trials[0]

    @property
    def store(self) -> Store:
        return Store(self.folder / "runs")

    @contextmanager
    def damaged(self, damage: Callable[[Path], object], below: str, name: str) -> Iterator[None]:
        """The store while one of its files is damaged."""
        target = self.folder / "runs" / below
        damage(find(target, name))
        try:
            yield
        finally:
            DAMAGES["missing"](target)
            shutil.copytree(self.whole / "runs" / below, target, symlinks=True)

    def trial(self, damage: Callable[[Path], object], name: str) -> object:
        return self.damaged(damage, f"trials/{self.bad}", name)

    def study(self, damage: Callable[[Path], object], name: str) -> object:
        return self.damaged(damage, f"studies/{template.NAME}", name)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    whole = tmp_path_factory.mktemp("whole")
    trials = template.make(whole)
    folder = tmp_path_factory.mktemp("damaged")
    shutil.copytree(whole, folder, dirs_exist_ok=True)
    return Place(folder, whole, trials)


def sample(place: Place) -> list[str]:
    return ["sample", place.bad, "--prompt", "1", "--tokens", "2", "runs_dir=runs"]


@pytest.mark.parametrize("name", TRIAL_FILES)
def test_a_damaged_file_of_a_trial_stops_no_list_and_changes_nothing(place: Place, name: str) -> None:
    wrong = []
    lists = (["trials"], ["trials", "--json"], ["trials", "prune"], ["status"], ["status", template.NAME])
    for way, damage in DAMAGES.items():
        with place.trial(damage, name):
            for command in lists:
                found = run(command, place.folder, reads=True)
                named = place.bad in found.said
                if name in READ_RECORD and command in (["trials"], ["status", template.NAME]) and way != "missing":
                    named = named and (CORRUPT in found.said or way in ("empty", "cut", "directory"))
                expected = command not in (["trials"], ["trials", "--json"]) or named or (name, way) == (".", "missing")
                if found.kind != WORKED or not expected:
                    wrong.append((way, command, found))
            if (found := run(["trials", "compare", *place.trials[:2]], place.folder, reads=True)).kind in FAULTS:
                wrong.append((way, ["compare"], found))
    assert wrong == []


def test_a_damaged_trial_can_be_pruned_whole_and_nothing_of_it_stays(place: Place) -> None:
    folder = place.store.directory(place.bad)
    for name in ("record.json", "lock", "checkpoints", "."):
        for way in ("garbage", "directory", "link"):
            with place.trial(DAMAGES[way], name):
                found = run(["trials", "prune", place.bad, "--whole", "--remove", "--yes"], place.folder)
                assert found.kind == WORKED and not os.path.lexists(folder), (name, way, found)
                assert not list(folder.parent.glob(".pruned*"))


def test_a_damaged_record_is_listed_with_its_reason(place: Place) -> None:
    for way in ("empty", "cut", "directory", "link", "garbage", "nested", "a_list"):
        with place.trial(DAMAGES[way], "record.json"):
            assert f'"status": "{CORRUPT}",\n "reason": "record.json: ' in run(["trials", place.bad], place.folder).out
            for command in (["trials"], ["status", template.NAME]):
                found = run(command, place.folder, reads=True)
                (line,) = (each for each in found.out.splitlines() if CORRUPT in each and "record.json: " in each)
                assert len(line) < 300
            assert place.store.records()[0].status == CORRUPT, "without a time it comes first"
            assert {each.status for each in place.store.records()[1:]} == {FINISHED}


@pytest.mark.evidence
def test_a_field_of_a_record_of_the_wrong_type_is_damage_that_is_named(place: Place) -> None:
    path = place.store.directory(place.bad) / "record.json"
    tried, wrong = 0, []
    for what, text in wrong_types(path):
        with place.trial(lambda path, text=text: path.write_text(text), "record.json"):
            tried += 1
            listed, state = (run(command, place.folder, reads=True) for command in (["trials"], ["status"]))
            if listed.kind != WORKED or state.kind != WORKED or place.bad not in listed.out:
                wrong.append((what, listed, state))
    assert wrong == []
    assert tried > 200


@pytest.mark.evidence
def test_a_manifest_of_wrong_types_is_named_and_stops_no_list(place: Place) -> None:
    path = place.store.studies / template.NAME / "manifest.json"
    wrong = []
    for what, text in wrong_types(path):
        with place.study(lambda path, text=text: path.write_text(text), "manifest.json"):
            one, all_ = (run(command, place.folder, reads=True) for command in (["status", template.NAME], ["status"]))
            if one.kind in FAULTS or all_.kind != WORKED or (one.kind == CLEAR and template.NAME not in all_.message):
                wrong.append((what, one, all_))
    assert wrong == []


@pytest.mark.parametrize("name", STUDY_FILES)
def test_a_damaged_file_of_a_study_is_named_and_stops_no_list(place: Place, name: str) -> None:
    wrong = []
    for way, damage in DAMAGES.items():
        with place.study(damage, name):
            for command in (["trials"], ["status"], ["status", template.NAME]):
                found = run(command, place.folder, reads=True)
                lists = command in (["trials"], ["status"])
                if found.kind in FAULTS or (lists and found.kind != WORKED):
                    wrong.append((way, command, found))
    assert wrong == []


@pytest.mark.parametrize("name", ["record.json", "metrics.csv", "artifacts", "artifacts/*.json", "."])
def test_a_report_reads_what_is_left_and_names_what_is_not(place: Place, name: str) -> None:
    study = place.store.studies / template.NAME
    for way, damage in DAMAGES.items():
        with place.trial(damage, name):
            found = read(study, place.store.runs_dir)
            assert len(found.cells) == 4 and sum(found.cells["status"] == FINISHED) >= 3, way
            assert found.problems or way in ("missing", "empty") or name in ("artifacts", "."), way


def _sampled(place: Place) -> None:
    """What `sample` and every replay begin with."""
    record = place.store.find(place.bad)
    from swapformer.results.config import require_config

    restore(require_config(place.store.directory(record.id)), place.store.directory(record.id))


def _started(place: Place) -> None:
    """What `init_from` begins with."""
    resolve_source(place.bad, str(place.folder / "runs"))


def _refusal(act: Callable[[Place], None], place: Place) -> Callable[[], int]:
    """`act` as a command: its status, with an error in one line."""
    from swapformer.console import guarded

    def run_it() -> int:
        return guarded(lambda: act(place))  # type: ignore[func-returns-value]

    return run_it


@pytest.mark.parametrize("name", ["record.json", "config.yaml", "checkpoints", "checkpoints/last.ckpt", "."])
def test_who_needs_the_weights_refuses_a_damaged_trial_in_one_line(place: Place, name: str) -> None:
    wrong = []
    needed: tuple[Callable[[Place], None], ...] = (_sampled,) if name == "config.yaml" else (_sampled, _started)
    for way, damage in DAMAGES.items():
        with place.trial(damage, name):
            for act in needed:
                found = judge(_refusal(act, place), place.folder, reads=True)
                if found.kind != CLEAR or place.bad not in found.message:
                    wrong.append((way, act.__name__, found))
    assert wrong == []


@pytest.mark.parametrize("content", CHECKPOINTS)
def test_a_checkpoint_that_holds_something_else_is_refused_in_one_line(place: Place, content: str) -> None:
    with place.trial(CHECKPOINTS[content], "checkpoints/last.ckpt"):
        for act in (_sampled, _started):
            found = judge(_refusal(act, place), place.folder, reads=True)
            fits_all = act is _started and content in ("other names", "other shapes")  # no model is known there yet
            whole = content == "weights alone"
            assert found.kind == (WORKED if fits_all or whole else CLEAR), found
        if content == "not a number":
            assert run(sample(place), place.folder, reads=True).kind == CLEAR


def test_a_configuration_of_wrong_types_is_refused_in_one_line(place: Place) -> None:
    """A seventh of the fields and values, others each time the file grows; the random form tries all."""
    path = place.store.directory(place.bad) / "config.yaml"
    wrong = []
    for number, (what, text) in enumerate(wrong_types(path)):
        if number % 7 == 0:
            with place.trial(lambda path, text=text: path.write_text(text), "config.yaml"):
                found = judge(_refusal(_sampled, place), place.folder, reads=True)
                if found.kind in FAULTS:
                    wrong.append((what, found))
    assert wrong == []


@pytest.mark.parametrize("name", [*TRIAL_FILES, "tokeniser.json", "log.txt"])
def test_a_study_redoes_a_trial_with_any_damage(
    tmp_path: Path, name: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is no file is set aside as every damage is, and the trial comes to its result (a stand-in for training)."""
    store, trial = Store(tmp_path / "runs"), fakes.trial(tmp_path / "journal")
    store.prepare()
    folder = store.directory(trial.id)
    for way, damage in DAMAGES.items():
        execute(trial, store, fakes.PROVENANCE, fakes.WORK)
        (folder / "artifacts").mkdir(exist_ok=True)
        (folder / "artifacts" / "head_similarity.json").write_text("{}")
        (folder / "log.txt").touch()
        (folder / "checkpoints" / "last.ckpt").write_text("step 5")
        store.write(Record(trial.id, RUNNING, seed=0, attempts=1))
        damage(find(folder, name))
        with caplog.at_level(logging.WARNING):
            launch_missing([trial], store, lambda _: execute(trial, store, fakes.PROVENANCE, fakes.WORK))
        found = store.read(trial.id)
        assert found is not None and found.status == FINISHED, way
        DAMAGES["missing"](folder)


@pytest.mark.evidence
@pytest.mark.parametrize("content", CHECKPOINTS)
def test_a_trial_whose_checkpoint_is_damaged_comes_to_the_same_result(place: Place, content: str) -> None:
    """Trained for real. A checkpoint of not-a-numbers reads as whole, and diverges, as the training itself may."""
    (trial,) = [each for each in expand(load(str(place.folder / template.FILE))).trials if each.id == place.bad]
    expected = place.store.read(trial.id)
    assert expected is not None
    with place.trial(CHECKPOINTS[content], "checkpoints/last.ckpt"):
        place.store.write(Record(trial.id, RUNNING, seed=0, attempts=1))
        found = execute(trial, place.store, current_provenance())
        assert found is not None
        if content == "not a number":
            assert found.status != FINISHED
        else:
            assert found.metrics == expected.metrics
            assert any("corrupt checkpoint set aside" in note for note in found.notes)


class TestTheHarness:
    """Each fault that it looks for, planted."""

    def test_finds_a_reader_that_lets_an_exception_through(self, place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(schema, "_require", lambda *_: None)  # as it was: fields of any type are believed

        def without_start(path: Path) -> None:
            path.write_text(path.read_text().replace('"started": "', '"started": null, "x": "'))

        with place.trial(without_start, "record.json"):
            assert run(["trials"], place.folder, reads=True).kind == TRACEBACK

    def test_finds_a_reader_that_writes(self, place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
        read = Store.read

        def read_and_set_aside(store: Store, trial: str) -> Record | None:
            with store.lock(trial):
                store.repair(trial)
            return read(store, trial)

        monkeypatch.setattr(Store, "read", read_and_set_aside)  # as it was
        with place.trial(DAMAGES["garbage"], "record.json"):
            assert run(["trials"], place.folder, reads=True).kind == CHANGED

    @pytest.mark.parametrize("message", ["two\nlines", "x" * 301, ""])
    def test_finds_an_unclear_refusal(self, tmp_path: Path, message: str) -> None:
        def refuse() -> int:
            import sys

            print(message, file=sys.stderr)
            return 2

        assert judge(refuse, tmp_path).kind == UNCLEAR
