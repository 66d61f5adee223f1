"""Forecasting: splits in time, standardised by what training sees, with nothing invented where a value is missing."""

from __future__ import annotations

import importlib
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from torch import Tensor

from swapformer.errors import UsageError
from swapformer.paths import conf_dir
from swapformer.task.base import Batch
from swapformer.task.forecast import Forecast

SHIPPED = ("elnino", "sunspots", "co2")


def shipped(name: str, **settings: Any) -> Forecast:
    config = yaml.safe_load((conf_dir() / "task" / f"{name}.yaml").read_text(encoding="utf-8"))
    assert config.pop("_target_") == "swapformer.task.Forecast"
    return Forecast(**config | settings)


def counting(file: Path, rows: int = 100, **settings: Any) -> Forecast:
    """A series of all different numbers: row n is 3n, in another column −n."""
    file.write_text("day,x,y\n" + "".join(f"d{n},{3 * n},{-n}\n" for n in range(rows)), encoding="utf-8")
    return Forecast(**{"path": str(file), "columns": ["x"], "block": 8} | settings)


def batches(task: Forecast, split: str) -> Iterator[Batch]:
    if split == "train":
        yield from (task.train_batch(0, step) for step in range(20))
    else:
        for one in task.evaluation(split):  # type: ignore[arg-type]
            yield from (one.batch(index) for index in range(one.batches or 0))


def seen(task: Forecast, split: str) -> Tensor:
    """Row numbers of all values, read or to be predicted, of a `counting` series."""
    found = [torch.cat([batch.inputs, batch.targets], 1).flatten() for batch in batches(task, split)]
    last = int(0.6 * 100)
    x = 3.0 * np.arange(last)
    return ((torch.cat(found).double() * x.std() + x.mean()) / 3).round().long()


def test_no_value_is_in_two_splits_and_they_follow_each_other(tmp_path: Path) -> None:
    task = counting(tmp_path / "a.csv", eval_lengths=[16])
    train, val, test = (set(seen(task, split).tolist()) for split in ("train", "val", "test"))
    assert train == set(range(60)) and val == set(range(60, 77)) and test == set(range(80, 97))


def test_a_target_is_the_next_value_and_the_values_are_standardised_by_the_training_part_alone(tmp_path: Path) -> None:
    task = counting(tmp_path / "a.csv", columns=["y", "x"])
    batch = task.train_batch(3, 4)
    assert batch.inputs.shape == batch.targets.shape == (16, 8, 2) and batch.inputs.dtype == torch.float32
    assert torch.equal(batch.inputs[:, 1:], batch.targets[:, :-1])
    first = -np.arange(60.0)
    rows = ((batch.inputs[..., 0].double() * first.std() + first.mean()) * -1).round()
    assert torch.equal(rows[:, 1:] - rows[:, :-1], torch.ones(16, 7, dtype=torch.double))
    assert torch.allclose(batch.inputs[..., 0], -batch.inputs[..., 1]), "each channel has a scale of its own"
    interface = task.interface
    assert (interface.channels, interface.readouts[""].kind, interface.readouts[""].size) == (2, "values", 2)


@pytest.mark.parametrize("name", SHIPPED)
def test_the_shipped_series_are_those_that_statsmodels_loads(name: str) -> None:
    frame = importlib.import_module(f"statsmodels.datasets.{name}").load_pandas().data
    config = yaml.safe_load((conf_dir() / "task" / f"{name}.yaml").read_text(encoding="utf-8"))
    expected = frame[config["columns"]].to_numpy(dtype=float).reshape(-1)
    expected = np.diff(expected) if config["difference"] else expected
    training = expected[: int(0.6 * len(expected))]
    task = shipped(name)
    np.testing.assert_allclose(task._targets[:, 0], (expected - np.nanmean(training)) / np.nanstd(training), atol=1e-5)
    metrics = task.metrics()
    for batch in batches(task, "val"):
        metrics.update(batch.inputs, batch.targets)
    found = metrics.compute()
    assert float(found["skill"]) == pytest.approx(0, abs=1e-6), "the naive forecast itself"
    assert {key for key in found if not key.endswith("_se")} == set(task.directions)


def test_a_missing_value_is_the_one_before_it_and_is_not_to_be_predicted(tmp_path: Path) -> None:
    path, numbers = tmp_path / "gaps.csv", [str(n % 7) for n in range(60)]
    for gap in (0, 5, 6, 36, 37, 50):
        numbers[gap] = "" if gap % 2 else "NaN"
    path.write_text("x\n" + "".join(f'"{number}"\n' for number in numbers), encoding="utf-8")
    task = Forecast(path=str(path), block=10)
    known = np.array([float(n) if n not in ("", "NaN") else math.nan for n in numbers])
    mean, std = np.nanmean(known[:36]), np.nanstd(known[:36])
    for split in ("train", "val", "test"):
        for batch in batches(task, split):
            for row, target in zip(batch.inputs[..., 0].tolist(), batch.targets[..., 0].tolist(), strict=True):
                values = [round(value * std + mean, 4) for value in row]
                for place in range(1, 10):
                    if math.isnan(target[place - 1]):
                        assert values[place] == values[place - 1]
                    else:
                        assert values[place] == pytest.approx(target[place - 1] * std + mean, abs=1e-3)
        if split == "val":
            assert values[0] == pytest.approx(mean, abs=1e-4), "nothing before it in its split: the training mean"
    assert any(batch.targets.isnan().any() for batch in batches(task, "train"))


def test_phases_come_round_with_the_season_and_events_are_the_jumps(tmp_path: Path) -> None:
    path = tmp_path / "jumps.csv"
    jumps = {20, 45, 70, 90}
    level, lines = 0.0, []
    for n in range(100):
        level += 50.0 if n in jumps else (-1) ** n * (1 + n / 100)
        lines.append(f"{level}\n")
    path.write_text("x\n" + "".join(lines), encoding="utf-8")
    task = Forecast(path=str(path), season=4, block=8)
    values = [float(line) for line in lines]
    mean, std = np.mean(values[:60]), np.std(values[:60])
    windows = np.lib.stride_tricks.sliding_window_view(values, 8)
    for split in ("train", "val", "test"):
        for batch in batches(task, split):
            rows = batch.inputs[..., 0].double() * std + mean
            for row, events, phases in zip(
                rows.tolist(), batch.tags["event"].tolist(), batch.tags["phase"], strict=True
            ):
                at = int(np.abs(windows - row).sum(1).argmin())
                np.testing.assert_allclose(windows[at], row, atol=1e-3)
                assert [at + place for place in range(8) if events[place]] == sorted(jumps & set(range(at, at + 8)))
                assert phases.tolist() == [(at + place) % 4 for place in range(8)]
    assert Forecast(path=str(path), block=8).tags == ("event",)


def test_sets_of_all_lengths_score_the_same_values(tmp_path: Path) -> None:
    task = counting(tmp_path / "a.csv", 400, eval_lengths=[4, 16], batch_size=2)
    for split in ("val", "test"):
        sets = task.evaluation(split)  # type: ignore[arg-type]
        assert [one.name for one in sets] == ["", "@4", "@16"]
        for index in range(3):
            assert len({tuple(sorted(one.batch(index).targets.flatten().tolist())) for one in sets}) == 1


def test_differences_are_the_changes_of_the_values(tmp_path: Path) -> None:
    path = tmp_path / "squares.csv"
    path.write_text("x\n" + "".join(f"{n * n}\n" for n in range(80)), encoding="utf-8")
    task = Forecast(path=str(path), difference=True, block=6)
    odd = 2.0 * np.arange(79) + 1
    [one] = task.evaluation("val")
    found = one.batch(0).inputs.double() * odd[:47].std() + odd[:47].mean()
    assert found.min() >= odd[47] - 1e-3 and torch.allclose(found % 2, torch.ones(()).double(), atol=1e-3)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"path": "statsmodels:sunspot"}, "must be followed by one of .*sunspots.*did you mean 'sunspots'"),
        ({"path": "nothing.csv"}, "task.path must be a readable CSV file in UTF-8, but 'nothing.csv' is not"),
        ({"columns": ["z"]}, "task.columns must be columns of '.*', which has day, x, y, but 'z' is not"),
        ({"columns": None}, r"a.csv:2: column 'day' must hold numbers, but has 'd0'; .* task.columns"),
        ({"columns": []}, "task.columns must name at least one column"),
        ({"block": 60}, "train split .* must have at least 61 values for task.block=60 .* has 60"),
        ({"eval_lengths": [20]}, "val split .* must have at least 21 values .* has 20"),
        ({"season": 8}, "must exceed task.season=8.* but 8 does not"),
        ({"split": [0.5, 0.5]}, "task.split must be three shares"),
    ],
)
def test_wrong_use_gets_one_line_that_says_what_must_hold(
    tmp_path: Path, settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        counting(tmp_path / "a.csv", **settings)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x\n1\n2\nfive\n", "a.csv:4: column 'x' must hold numbers, but has 'five'"),
        ("x,y\n1,2\n3\n", "a.csv:3: a line must have 2 cells like the header, but has 1"),
        ("x\n1\ninf\n", "a.csv:3: .* has 'inf'"),
        ("", "task.columns must name at least one column"),
        ("x,y,x\n1,2,3\n", "each column of .* must be named once, but .*x.* stands twice in its header"),
        ("x\n" + "7\n" * 90, "every column of .* must vary in its training part"),
    ],
)
def test_a_malformed_file_is_named_with_its_line(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "a.csv"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(UsageError, match=message):
        Forecast(path=str(path), block=4)
