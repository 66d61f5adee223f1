"""Room is made in a store without touching what runs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from swapformer.errors import UsageError
from swapformer.results.prune import find_waste, remove
from swapformer.results.record import Record
from swapformer.results.store import Store
from swapformer.results.trial_index import Member
from swapformer.tools import trials

IDS = ("0" * 16, "1" * 16)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """Two finished trials with 300 bytes of checkpoints each, and 200 bytes beside."""
    found = Store(tmp_path)
    found.prepare()
    for trial in IDS:
        for name, size in {
            "checkpoints/last.ckpt": 200,
            "checkpoints.corrupt-1/last.ckpt": 100,
            "log.txt": 200,
        }.items():
            path = found.directory(trial) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(b"x" * size)
        found.write(Record(trial, "finished", metrics={"val/loss": 1.0}))
    return found


def test_checkpoints_go_and_the_numbers_stay(store: Store) -> None:
    found = list(find_waste(store, store.records(), whole=False))
    assert [(waste.record.id, waste.bytes) for waste in found] == [(trial, 300) for trial in IDS]
    assert all(remove(store, waste) for waste in found)
    assert [record.metrics for record in store.records()] == [{"val/loss": 1.0}] * 2
    assert not list(store.trials.glob("*/checkpoints*"))
    assert list(find_waste(store, store.records(), whole=False)) == []


def test_a_whole_trial_leaves_nothing(store: Store) -> None:
    first = next(find_waste(store, store.records(), whole=True))
    assert first.bytes > 500  # the record besides
    (store.trials / ".pruned-left-by-a-kill").mkdir()
    assert remove(store, first)
    assert [path.name for path in store.trials.iterdir()] == [IDS[1]]


@pytest.mark.parametrize("whole", [False, True])
def test_a_trial_that_a_process_runs_is_not_touched(store: Store, whole: bool) -> None:
    before = list(find_waste(store, store.records(), whole))
    with store.lock(IDS[0]):
        assert [waste.record.id for waste in find_waste(Store(store.runs_dir), store.records(), whole)] == [IDS[1]]
        assert not remove(Store(store.runs_dir), before[0]), "taken up since it was found"
    assert (store.directory(IDS[0]) / "checkpoints" / "last.ckpt").exists()


def test_a_study_that_is_named_in_full_is_not_the_beginning_of_another(
    store: Store, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    index = {IDS[0]: [Member("rates", "a")], IDS[1]: [Member("rates_of_more", "b")]}
    monkeypatch.setattr(trials, "members", lambda _store: index)
    runs = f"runs_dir={store.runs_dir}"
    for name, found in {"rates": IDS[:1], "rates_": IDS[1:], "rat": IDS}.items():
        assert trials.main(["prune", "--study", name, "--whole", "--json", runs]) == 0
        assert [entry["trial"] for entry in json.loads(capsys.readouterr().out)["found"]] == list(found)
    with pytest.raises(UsageError, match="no arm 'b'"):
        trials.main(["--study", "rates", "--arm", "b", runs])
