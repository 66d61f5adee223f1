"""Room is made without touching what runs, and configs are compared leaf by leaf."""

from __future__ import annotations

from pathlib import Path

import pytest

from swapformer.results.config import ABSENT, differences, leaves, says
from swapformer.results.prune import find_waste, remove
from swapformer.results.record import Record
from swapformer.results.store import Store

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


def test_two_configs_differ_in_leaves() -> None:
    one = {"model": {"d_model": 64, "layers": [{"at": 0}], "bias": True}, "seed": 0, "tags": []}
    other = {"model": {"d_model": 64, "layers": [{"at": 1}, {"at": 2}], "bias": 1}, "seed": 0, "tags": {}}
    assert differences(one, other) == {
        "model.layers.0.at": (0, 1),
        "model.bias": (True, 1),
        "tags": ([], {}),
        "model.layers.1.at": (ABSENT, 2),
    }
    assert differences(one, one) == {}
    assert dict(leaves(one)) == {
        "model.d_model": 64, "model.layers.0.at": 0, "model.bias": True, "seed": 0, "tags": [],
    }  # fmt: skip


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("ALiBi", True),
        ("num_heads: 4", True),
        ("model.num_heads=4", True),
        ("model.num_heads=2", False),
        ("num_heads=4", False),
        ("model.bias=true", True),
        ("model.bias=1", False),
        ("Rotary", False),
        ("optim.lr=0.01", True),
        ("optim.lr=1e-2", True),
        ("optim.lr=.01", True),
        ("optim.lr=0.1", False),
        ("optim.eps=1e-8", True),
        ("optim.betas.1=0.95", True),
        ("optim.betas.1=[", False),
        ("note=a text", True),
        ("none=null", True),
    ],
)
def test_a_config_is_searched_for_a_text_or_a_leaf(tmp_path: Path, text: str, found: bool) -> None:
    optim = "optim:\n  lr: 0.01\n  eps: 1e-8\n  betas:\n  - 0.9\n  - 0.95\n"
    model = "model:\n  position:\n    _target_: x.ALiBi\n  num_heads: 4\n  bias: true\n"
    (tmp_path / "config.yaml").write_text(f"{model}{optim}note: a\n  text\nnone: null\n")
    assert says(tmp_path, text) is found
    assert not says(tmp_path / "nowhere", text)
