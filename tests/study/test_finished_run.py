"""A study with nothing left to run: known by what it left, and no longer when anything that decides is another."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from report.store import Store as FakeStore
from swapformer.results import kept_answers, stamps
from swapformer.results.stamps import Stamps
from swapformer.results.store import Store
from swapformer.study import finished_run
from swapformer.study.finished_run import find_finished_run, keep_finished_run, store_of
from swapformer.study.spec import Spec, parse

CONFIG: dict[str, Any] = {
    "model": {"_target_": "swapformer.model.topology.Decoder"},
    "task": {"source": {"_target_": "swapformer.task.source.Files", "path": "texts"}},
    "init_from": None,
    "measure": {},
    "logger": [],
}  # fmt: skip


class Ended:
    """A study that has ended, and what it is asked with."""

    def __init__(self, place: Path) -> None:
        (place / "texts").mkdir()
        (place / "texts" / "a.txt").write_text("one")
        self.fake = FakeStore(place, {"a": [], "b": ["x=1"]}, "a", ["val/loss"], range(2), name="asked")
        self.fake.write(lambda arm, seed: {"val/loss": 2.0})
        self.store, self.config, self.overrides = Store(place / "runs"), CONFIG, ["x.y=2"]
        self.statuses = {"1": "finished", "2": "finished", "3": "diverged"}

    def spec(self, seeds: int = 2) -> Spec:
        return parse({"arms": {"a": [], "b": ["x=1"]}, "baseline": "a", "seeds": seeds}, "asked")

    def keep(self) -> None:
        plan = SimpleNamespace(templates=[SimpleNamespace(config=self.config)])
        found: Any = SimpleNamespace(plan=plan, statuses=self.statuses)
        keep_finished_run(self.spec(), self.overrides, self.store, found)

    def found(self, seeds: int = 2) -> Any:
        return find_finished_run(self.spec(seeds), self.overrides, self.store)


@pytest.fixture
def ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ended:
    monkeypatch.setattr(stamps, "SETTLED", 0)
    for module in (kept_answers, finished_run):
        monkeypatch.setattr(module, "program", lambda: Stamps().add("as it was"))
    monkeypatch.chdir(tmp_path)
    return Ended(tmp_path)


def test_it_is_found_while_nothing_changed(ended: Ended) -> None:
    assert ended.found() is None
    ended.keep()
    found = ended.found()
    assert found.statuses == {"finished": 2, "diverged": 1} and found.data == (str(Path("texts").absolute()),)


CHANGES: dict[str, Callable[[Ended, pytest.MonkeyPatch], object]] = {
    "an override": lambda ended, _: ended.overrides.append("z=3"),
    "the data": lambda ended, _: Path("texts/a.txt").write_text("three"),
    "more data": lambda ended, _: Path("texts/b.txt").write_text(""),
    "a trial": lambda ended, _: (ended.fake.directory("a", 0) / "record.json").unlink(),
    "the manifest": lambda ended, _: (ended.fake.study / "manifest.json").unlink(),
    "the program": lambda _, patch: patch.setattr(finished_run, "program", lambda: Stamps().add("edited")),
    "packages": lambda _, patch: patch.setenv("SWAPFORMER_PACKAGES", "mine"),
    "a resolver": lambda _, patch: patch.setenv("SWAPFORMER_RESOLVERS", "mine"),
    "another folder": lambda _, patch: patch.chdir("texts"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_it_is_not_found_when_anything_that_decides_is_another(
    change: str, ended: Ended, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended.keep()
    assert ended.found() is not None and ended.found(seeds=3) is None
    CHANGES[change](ended, monkeypatch)
    assert ended.found() is None


UNKNOWN: dict[str, dict[str, Any]] = {
    "a part of one's own": {"model": {"_target_": "mine.Part"}},
    "data from the network": {"task": {"source": {"_target_": "swapformer.task.source.HuggingFace"}}},
    "a pattern of files": {"task": {"source": {"path": "texts/*.txt"}}},
    "a measurement": {"measure": {"_target_": "swapformer.measure.Step"}},
    "a mirror": {"logger": [{"_target_": "swapformer.mirror.Csv"}]},
}


@pytest.mark.parametrize("unknown", UNKNOWN)
def test_what_cannot_be_looked_at_is_not_kept(unknown: str, ended: Ended) -> None:
    ended.config = {**CONFIG, **UNKNOWN[unknown]}
    ended.keep()
    assert ended.found() is None


def test_without_all_results_nothing_is_kept(ended: Ended) -> None:
    ended.statuses = {"1": "finished", "2": "failed"}
    ended.keep()
    assert ended.found() is None


@pytest.mark.parametrize("override", ["hydra.searchpath=[file://conf]", "logger=csv"])
def test_options_and_mirrors_of_ones_own_are_composed_each_time(override: str, ended: Ended) -> None:
    ended.overrides.append(override)
    ended.keep()
    assert ended.found() is None


def test_the_store_is_that_of_the_command(tmp_path: Path) -> None:
    spec = parse({"arms": {"a": []}, "baseline": "a"}, "asked")
    found = store_of(spec, [f"runs_dir={tmp_path}"])
    assert found is not None and found.runs_dir == tmp_path
    named = parse({"arms": {"a": []}, "baseline": "a", "overrides": ["runs_dir=elsewhere"]}, "asked")
    assert store_of(named, []) is None and store_of(spec, ["runs_dir=a\0b"]) is None
