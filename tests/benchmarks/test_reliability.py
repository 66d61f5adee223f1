"""What a store survives, on a small scale, and that a store which does not survive it is noticed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from unittest.mock import patch

import pytest

from benchmarks.measurement import Figure
from benchmarks.reliability import clock, files, large_stores, processes
from swapformer.errors import UsageError
from swapformer.results import files as stored_files
from swapformer.results import lock
from swapformer.results.store import Store


def missed(figures: Sequence[Figure]) -> list[str]:
    return [figure.name for figure in figures if not figure.met]


def test_files_that_are_cut_are_noticed_and_their_trial_comes_to_the_same() -> None:
    assert missed(files.measure_cut_files(3)) == []


def test_a_store_that_believes_what_is_cut_is_found_out() -> None:
    with patch.object(Store, "repair", lambda *_: None):
        assert any("not set aside" in name for name in missed(files.measure_cut_files(2)))


@pytest.mark.evidence
def test_a_full_disk_costs_nothing_but_the_attempt() -> None:
    try:
        found = files.measure_full_disk(3)
    except UsageError as error:
        pytest.skip(str(error))
    assert missed(found) == []


@pytest.mark.evidence
def test_clocks_that_jump_change_nothing() -> None:
    assert missed(clock.measure_clock(3)) == []


@pytest.mark.evidence
def test_a_claim_that_trusts_clocks_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """As it once was: a heartbeat from the future kept everybody waiting for a day."""
    monkeypatch.setattr(lock, "abs", lambda seconds: seconds, raising=False)
    monkeypatch.setattr(clock, "launch_missing", lambda *_: None)
    assert "claims of a dead host whose clock was ahead that are believed" in missed(clock.measure_clock(3))


@pytest.mark.evidence
def test_sigkills_lose_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "SEEDS", 1)
    monkeypatch.setattr(processes, "STEPS", 60)
    monkeypatch.setattr(processes, "WEIGHTS", {"trial": 1, "server": 0, "parent": 0})
    found = processes.measure_kills(1, seed=1)
    assert missed(found) == [] and found[0].value == 1


@pytest.mark.evidence
def test_invented_stores_are_listed_and_reported(tmp_path: Path) -> None:
    listed, reported = large_stores.measure_large_stores(60, 40, 1)
    assert listed.value > 0 and reported.value > 0 and listed.name == "swapformer trials, 60 trials"


def test_a_half_written_file_is_seen(tmp_path: Path) -> None:
    from benchmarks.reliability.tiny_trials import leftovers

    checkpoints = Store(tmp_path).directory("0123") / "checkpoints"
    checkpoints.mkdir(parents=True)
    halves = [
        tmp_path / f"{stored_files.TEMPORARY}record.json.1",
        checkpoints / "last.tmp",
        checkpoints.parent / "metrics.tmp",
    ]
    for half in (*halves, checkpoints / "last.ckpt", checkpoints.parent / "metrics.csv"):
        half.touch()
    assert sorted(leftovers(Store(tmp_path))) == sorted(halves)
