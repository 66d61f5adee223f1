"""The history of a trial: written whole, resumed at its checkpoint, followed as it grows, and read by one parser."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from swapformer.results.history import (
    HistoryRow,
    HistoryTail,
    HistoryWriter,
    newest_step,
    newest_value,
    parse_row,
    read_history,
)

HEAD = "step,name,value\n"
ROWS = ["10,train/loss,3.0\n", "10,val/loss,3.5\n", "20,train/loss,2.0\n", "20,val/loss,2.5\n", "30,train/loss,nan\n"]


@pytest.mark.parametrize(
    ("line", "row"),
    [
        (b"10,val/loss,2.5", HistoryRow(10, "val/loss", 2.5)),
        (b'10,"val/loss,late",inf', HistoryRow(10, "val/loss,late", math.inf)),
        (b"step,name,value", None),
        (b"10,val/loss", None),
        (b"10,val/loss,2,5", None),
        (b"10,val/loss,", None),
        (b"-1,val/loss,2.5", None),
        (b"1\x00,,", None),
        (b"\xff\xfe", None),
        (b"", None),
    ],
)
def test_a_line_is_a_row_or_nothing(line: bytes, row: HistoryRow | None) -> None:
    assert parse_row(line) == row


def test_what_is_written_reads_back_equal_to_every_reader(tmp_path: Path) -> None:
    values = {"val/loss": 0.1 + 0.2, "val/odd,name": 1e-300}
    HistoryWriter(tmp_path, 0).write(7, values)
    frame = read_history(tmp_path, list(values), [])
    assert dict(zip(frame["metric"], frame["value"], strict=True)) == values
    assert list(HistoryTail(tmp_path).rows()) == [(7, values)]
    assert newest_step(tmp_path) == 7


def test_a_row_without_a_value_is_damaged_and_one_that_is_no_number_is_a_value(tmp_path: Path) -> None:
    (tmp_path / "metrics.csv").write_text(HEAD + "".join(ROWS) + "40,val/loss\n50,val/loss,2.0\n")
    problems: list[str] = []
    frame = read_history(tmp_path, ["val/loss", "train/loss"], problems)
    assert [step for step, metric in zip(frame["step"], frame["metric"], strict=True) if metric == "val/loss"] == [
        10,
        20,
        50,
    ]
    assert frame["value"].isna().sum() == 1 and "1 damaged line was" in problems[0]


def test_a_resumed_trial_keeps_the_bytes_of_the_rows_up_to_its_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "metrics.csv").write_text(HEAD + "".join(ROWS) + "20,test/loss,7\ngarbage\n20,torn/loss,1.2")
    HistoryWriter(tmp_path, 20).write(21, {"val/loss": 1.5})
    kept = HEAD + "".join(ROWS[:4]) + "20,test/loss,7\n21,val/loss,1.5\n"
    assert (tmp_path / "metrics.csv").read_text() == kept, "what has no newline may have lost digits"


@pytest.mark.parametrize("cut", [0, 4, 9])
def test_each_row_is_given_once_whole_and_in_order_however_the_file_grows(tmp_path: Path, cut: int) -> None:
    path, text = tmp_path / "metrics.csv", HEAD + "".join(ROWS[:4])
    history, given = HistoryTail(tmp_path), []
    for end in range(0, len(text) + 1, 7) if cut == 0 else (len(text) - cut, len(text)):
        path.write_text(text[:end])
        given += [(step, name, value) for step, values in history.rows() for name, value in values.items()]
    path.write_text(text)
    given += [(step, name, value) for step, values in history.rows() for name, value in values.items()]
    assert given == [(10, "train/loss", 3.0), (10, "val/loss", 3.5), (20, "train/loss", 2.0), (20, "val/loss", 2.5)]


def test_rows_that_a_resumed_trial_measures_again_are_not_given_again(tmp_path: Path) -> None:
    path = tmp_path / "metrics.csv"
    path.write_text(HEAD + "".join(ROWS[:3]))
    history = HistoryTail(tmp_path)
    assert [step for step, _ in history.rows()] == [10, 20]
    draft = tmp_path / "draft"
    draft.write_text(HEAD + "".join(ROWS[:2]))  # back to the checkpoint at 10
    draft.replace(path)
    assert list(history.rows()) == []
    path.write_text(HEAD + "".join(ROWS))
    (first, second) = history.rows()
    assert first == (20, {"val/loss": 2.5}) and second[0] == 30


@pytest.mark.parametrize(
    ("history", "step"),
    [
        ("", 0),
        ("step,name,value\n", 0),
        ("step,name,value\n10,train/loss,1.0", 0),
        ("step,name,value\n10,train/loss,1.0\n2", 10),
        ("step,name,value\n10,train/loss,1.0\n20,train/lo\n", 10),
        ("step,name,value\n" + "".join(f"{n},train/loss,1.0\n" for n in range(10, 9010, 10)), 9000),
    ],
)
def test_the_newest_step_is_that_of_the_last_whole_row(tmp_path: Path, history: str, step: int) -> None:
    (tmp_path / "metrics.csv").write_text(history)
    assert newest_step(tmp_path) == step
    assert newest_step(tmp_path / "nowhere") == 0


def test_the_newest_value_is_that_of_the_metric_alone(tmp_path: Path) -> None:
    writer = HistoryWriter(tmp_path, 0)
    writer.write(5, {"train/loss": 2.5})
    writer.write(9, {"val/loss": 7.0})
    assert newest_value(tmp_path, "train/loss") == 2.5 and newest_value(tmp_path, "val/loss") == 7.0
    assert newest_value(tmp_path, "val/accuracy") is None and newest_value(tmp_path / "none", "val/loss") is None


def test_every_damaged_line_is_counted_in_a_file_that_is_no_table(tmp_path: Path) -> None:
    (tmp_path / "metrics.csv").write_bytes(b"\xff\xfe\x00\n\x01\n\x02")
    problems: list[str] = []
    assert read_history(tmp_path, None, problems).empty
    assert problems[-1].endswith("metrics.csv: 2 damaged lines were left out")
