"""The files of costs come back as they were written, and those of another version are not read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from swapformer.results.arms import Cell
from swapformer.results.costs import (
    CostedArm,
    CostRounds,
    Costs,
    Counted,
    Measured,
    is_measured,
    read_costs,
    write_counted,
)
from swapformer.results.manifest import Manifest

KEY = "0123456789abcdef"
ROUNDS = [
    {"step_seconds": 0.5, "peak_bytes": 9, "start_bytes": 4, "device_bytes": None, "tokens_per_step": 10},
    {"step_seconds": 0.3, "peak_bytes": 8, "start_bytes": 5, "device_bytes": None, "tokens_per_step": 10},
]
MEASUREMENT = CostRounds(KEY, {"key": "h", "name": "a machine"}, ROUNDS, 1, 2, True, 0.5, "noon", None, "0.2")
MANIFEST = Manifest("x", "a", {"a": ()}, (0,), ("val/loss",), (Cell("a", 0, "00"),))


def test_what_is_counted_and_measured_comes_back(tmp_path: Path) -> None:
    write_counted(tmp_path, [CostedArm("a", "", "00", KEY, Counted(7, None, 3))])
    MEASUREMENT.write(tmp_path)
    problems: list[str] = []
    costs = read_costs(MANIFEST, tmp_path, tmp_path, problems)
    assert costs.counted == {("a", ""): Counted(7, None, 3)} and problems == []
    assert costs.measured == {"a machine": {("a", ""): Measured((0.5, 0.3), 10, 9, 5, None, 2, "noon", True)}}
    assert costs.timed("")["a"].step == pytest.approx(0.4)
    assert is_measured(tmp_path, KEY, "h") and not is_measured(tmp_path, KEY, "other")


def test_the_file_of_a_measurement_is_as_it_always_was(tmp_path: Path) -> None:
    MEASUREMENT.write(tmp_path)
    assert json.loads((tmp_path / "costs" / KEY / "h.json").read_text()) == {
        "schema_version": 1, "key": KEY, "hardware": {"key": "h", "name": "a machine"}, "rounds": ROUNDS,
        "tokens_per_step": 10, "warm_up": 1, "steps": 2, "forced": True, "load": 0.5, "pass": "noon", "commit": None,
        "swapformer": "0.2",
    }  # fmt: skip


@pytest.mark.parametrize("file", ["costs.json", f"costs/{KEY}/h.json"])
def test_a_file_of_another_version_is_named_and_measured_again(tmp_path: Path, file: str) -> None:
    write_counted(tmp_path, [CostedArm("a", "", "00", KEY, None)])
    MEASUREMENT.write(tmp_path)
    path = tmp_path / file
    path.write_text(json.dumps({**json.loads(path.read_text()), "schema_version": 2}))
    problems: list[str] = []
    assert read_costs(MANIFEST, tmp_path, tmp_path, problems) == Costs()
    assert len(problems) == 1 and "schema_version is 2, but this swapformer reads 1" in problems[0]
    assert is_measured(tmp_path, KEY, "h") is (file == "costs.json")
