"""Where longer trainings may begin: what trials keep, as the store says it."""

from __future__ import annotations

from pathlib import Path

import pytest

from swapformer.results.branch_points import BranchPoint, announce, branch_points, forget, stable_path
from swapformer.results.prune import find_waste, remove
from swapformer.results.record import Record
from swapformer.results.store import Store

ONE, OTHER, THIRD = "1" * 16, "2" * 16, "3" * 16


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """Three trials of one trajectory that keep a state, the third of another trajectory."""
    found = Store(tmp_path)
    found.prepare()
    for trajectory, step, trial in (("a" * 16, 9, ONE), ("a" * 16, 100, OTHER), ("b" * 16, 50, THIRD)):
        announce(found, trajectory, BranchPoint(step, trial))
        path = stable_path(found.directory(trial))
        path.parent.mkdir(parents=True)
        path.write_bytes(b"state")
        found.write(Record(trial, "finished", metrics={"val/loss": 1.0}))
    return found


def test_the_latest_point_comes_first_and_none_behind_the_step_that_is_asked_for(store: Store) -> None:
    first, second = BranchPoint(9, ONE), BranchPoint(100, OTHER)
    assert branch_points(store, "a" * 16, 100) == [second, first]  # by number: as text 9 is more than 100
    assert branch_points(store, "a" * 16, 99) == [first]
    assert branch_points(store, "a" * 16, 8) == []
    assert branch_points(store, "c" * 16, 100) == []


def test_a_state_that_is_not_there_yet_or_no_more_is_no_point(store: Store) -> None:
    stable_path(store.directory(OTHER)).unlink()
    announce(store, "a" * 16, BranchPoint(70, "4" * 16))
    assert branch_points(store, "a" * 16, 100) == [BranchPoint(9, ONE)]


def test_strange_files_are_passed_over(store: Store) -> None:
    folder = store.runs_dir / "branches" / ("a" * 16)
    for name in ("notes.txt", f"-{ONE}", f"7-{ONE}.tmp", f"{'9' * 30}-{ONE}"):
        (folder / name).touch()
    assert branch_points(store, "a" * 16, 10**17) == [BranchPoint(100, OTHER), BranchPoint(9, ONE)]


def test_saying_it_again_changes_nothing(store: Store) -> None:
    announce(store, "a" * 16, BranchPoint(9, ONE))
    assert branch_points(store, "a" * 16, 9) == [BranchPoint(9, ONE)]


@pytest.mark.parametrize("whole", [False, True])
def test_a_pruned_trial_is_forgotten_and_no_other(store: Store, whole: bool) -> None:
    waste = next(found for found in find_waste(store, store.records(), whole) if found.record.id == OTHER)
    assert remove(store, waste)
    left = {path.name for path in store.runs_dir.glob("branches/*/*")}
    assert left == {f"9-{ONE}", f"50-{THIRD}"}
    forget(store, ONE)
    assert branch_points(store, "a" * 16, 100) == []


def test_a_store_without_any_has_none(tmp_path: Path) -> None:
    assert branch_points(Store(tmp_path), "a" * 16, 100) == []
    forget(Store(tmp_path), ONE)
