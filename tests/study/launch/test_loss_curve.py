"""The curve at the end of a training stands where the numbers say, and never runs over its columns."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from swapformer.results.history import HistoryWriter
from swapformer.study.launch.loss_curve import HEIGHT, draw, loss_curve


def test_each_value_stands_at_its_step_and_its_height(tmp_path: Path) -> None:
    """By hand: steps 0…70 over 70 columns (1 + 1 + 1 characters before them of 73), losses 8…1 over 8 lines."""
    writer = HistoryWriter(tmp_path, 0)
    for index in range(8):
        writer.write(10 * index, {"train/loss": 8.0 - index, "val/loss@64": 99.0})
    writer.write(70, {"val/loss": 8.0})
    lines = loss_curve(tmp_path, 73)
    assert len(lines) == HEIGHT + 2
    assert lines[0] == "8 |." + " " * 68 + "o" and lines[7] == "1 |" + " " * 69 + "."
    for index in range(1, 7):
        assert lines[index] == "  |" + " " * (index * 10 * 69 // 70) + "."
    assert lines[8] == "  |step 0" + " " * 62 + "70" and lines[9].split() == [".", "train/loss", "o", "val/loss"]


def test_a_column_holds_the_mean_of_its_values() -> None:
    """1000 steps that swing between 0 and 2 about 1: every column but those of a single value lies in the middle."""
    points = [(step, 1.0 + (-1) ** step) for step in range(1000)]
    lines = draw({"train/loss": points}, 40)
    middle = lines[3].count(".") + lines[4].count(".")
    assert middle >= 35 and sum(line.count(".") for line in lines[:HEIGHT] if "|" in line) >= middle


@pytest.mark.parametrize("columns", [40, 57, 80, 200])
@pytest.mark.parametrize("scale", [1e-9, 1.0, 123456.789, 1e12])
def test_no_line_is_wider_than_the_terminal_or_eighty_columns(columns: int, scale: float) -> None:
    points = [(step, scale * (1 + math.exp(-step / 100))) for step in range(5000, 105000, 7)]
    lines = draw({"train/loss": points, "val/loss": points[::100]}, columns)
    assert lines and max(map(len, lines)) <= min(columns, 80) and all(line.isascii() for line in lines)
    assert lines[-2].endswith(str(points[-1][0])) and lines[-2].split("|")[1].startswith("step 5000")


def test_equal_losses_are_a_line_and_one_step_or_none_is_no_curve(tmp_path: Path) -> None:
    assert "." in "".join(draw({"train/loss": [(1, 2.0), (2, 2.0)]}, 80))
    assert draw({"train/loss": [(1, 2.0)]}, 80) == [] and draw({}, 80) == []
    assert draw({"train/loss": [(1, 2.0), (9, 1.0)]}, 29) == [], "too narrow"
    assert loss_curve(tmp_path, 80) == [], "no history"


def test_what_is_not_finite_is_left_out(tmp_path: Path) -> None:
    HistoryWriter(tmp_path, 0).write(1, {"train/loss": 3.0})
    writer = HistoryWriter(tmp_path, 1)
    writer.write(2, {"train/loss": 2.0})
    writer.write(3, {"train/loss": math.inf, "val/loss": math.nan})
    lines = loss_curve(tmp_path, 80)
    assert lines[0].startswith("3 |") and lines[-2].endswith("2") and "val/loss" not in lines[-1]
