"""The share of a device's peak that a training reaches."""

from __future__ import annotations

import csv
import math
import time
from pathlib import Path

import pytest
import torch

from swapformer.results.history import SECONDS, UTILISATION
from swapformer.study.config.compose import compose, environment_class, flops_of_a_step
from swapformer.training import utilisation
from swapformer.training.assemble import build_task
from swapformer.training.fit import fit
from swapformer.training.utilisation import least_seconds, peak

SMALL = ["task=copy", "model.d_model=16", "model.num_layers=1", "budget.steps=20", "eval.every=10", "log_every=5"]


@pytest.mark.parametrize(
    ("device", "precision", "tera"),
    [
        ("NVIDIA H100 80GB HBM3", "bf16-mixed", 989.4),
        ("NVIDIA H100 PCIe", "bf16-mixed", 756),
        ("NVIDIA H100 NVL", "16-mixed", 835),
        ("NVIDIA A100-SXM4-80GB", "bf16-true", 312),
        ("NVIDIA A100-SXM4-80GB", "32-true", 19.5),
        ("Tesla V100-SXM2-16GB", "16-mixed", 125),
        ("NVIDIA L40S", "bf16-mixed", 362),
        ("NVIDIA L4", "bf16-mixed", 121),
        ("NVIDIA A100-SXM4-80GB", "64-true", None),
        ("NVIDIA A100-SXM4-40GB MIG 1g.5gb", "bf16-mixed", None),
        ("NVIDIA GeForce RTX 4090 Laptop GPU", "bf16-mixed", None),
        ("Tesla V100-PCIE-16GB", "16-mixed", 112),
        ("NVIDIA A100-PCIE-40GB", "bf16-mixed", 312),
        ("NVIDIA H200 NVL", "bf16-mixed", None),
        ("NVIDIA GeForce RTX 3090 Ti", "bf16-mixed", None),
        ("NVIDIA GeForce RTX 4090 D", "bf16-mixed", None),
        ("NVIDIA L40", "bf16-mixed", None),
        ("NVIDIA A10G", "bf16-mixed", None),
        ("", "32-true", None),
    ],
)
def test_the_peak_is_that_of_the_device_s_whole_name(device: str, precision: str, tera: float | None) -> None:
    assert peak(device, precision) == (pytest.approx(tera * 1e12) if tera else pytest.approx(math.nan, nan_ok=True))


def test_float32_counts_as_tf32_where_torch_may_use_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "get_float32_matmul_precision", lambda: "high")
    assert peak("NVIDIA A100-SXM4-80GB", "32-true") == pytest.approx(156e12)


@pytest.mark.parametrize(("tf32", "precision"), [(True, "high"), (False, "highest")])
def test_a_training_says_whether_torch_may_use_tf32(tf32: bool, precision: str, tmp_path: Path) -> None:
    config = compose([*SMALL, "budget.steps=1", "eval.every=1", "schedule.warmup_steps=0"])
    try:
        fit({**config, "trainer": {**config["trainer"], "tf32": tf32}}, tmp_path)
        assert torch.get_float32_matmul_precision() == precision
    finally:
        torch.set_float32_matmul_precision("highest")


def test_trials_with_and_without_tf32_are_of_two_environment_classes() -> None:
    with_it, without = (
        environment_class(compose([*SMALL, "trainer=gpu", *more])) for more in (["trainer.tf32=true"], [])
    )
    assert with_it == {**without, "tf32": True}


def test_a_step_at_the_peak_takes_its_operations_over_what_all_devices_do() -> None:
    config = compose([*SMALL, "trainer=gpu", "trainer.devices=4", "trainer.strategy=ddp"])
    task = build_task(config)
    rows = task.train_batch(config["data_seed"], 0).inputs.shape[0]
    found = least_seconds(config, task, rows, "NVIDIA A100-SXM4-80GB")
    assert found == pytest.approx(
        flops_of_a_step(config) / (4 * peak("NVIDIA A100", str(config["trainer"]["precision"])))
    )


def test_experts_whose_work_depends_on_the_data_have_no_utilisation() -> None:
    config = compose([*SMALL, "model/ffn=moe"])
    assert math.isnan(least_seconds(config, build_task(config), 8, "NVIDIA A100-SXM4-80GB"))


def test_a_part_that_does_not_count_stops_no_training(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise AttributeError("a part of the user's own")

    config = compose(SMALL)
    monkeypatch.setattr(utilisation, "built", fails)
    assert math.isnan(least_seconds(config, build_task(config), 8, "NVIDIA A100-SXM4-80GB"))


def test_history_and_record_hold_operations_over_seconds_and_peak(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the definition, from the steps and the seconds that the history holds itself."""
    monkeypatch.setattr(utilisation, "device_name", lambda device: "Tesla T4")
    config, since = compose(SMALL), time.perf_counter()
    outcome = fit(config, tmp_path)
    most = time.perf_counter() - since
    with (tmp_path / "metrics.csv").open(newline="") as file:
        rows = {(int(row["step"]), row["name"]): float(row["value"]) for row in csv.DictReader(file)}
    seconds = {0: 0.0, **{step: value for (step, name), value in rows.items() if name == SECONDS}}
    one = flops_of_a_step(config) / 8.1e12
    for before, step in zip((0, 5, 10, 15), (5, 10, 15, 20), strict=True):
        assert rows[step, UTILISATION] == pytest.approx(5 * one / (seconds[step] - seconds[before]), rel=0.01)
    # the training ends after its last row: later than that, and before the trial has ended
    assert 20 * one / most < outcome.metrics[UTILISATION] <= 1.01 * 20 * one / seconds[20]
    assert outcome.directions[UTILISATION] == "higher"


def test_a_processor_without_a_peak_has_none(tmp_path: Path) -> None:
    outcome = fit(compose([*SMALL, "budget.steps=5", "eval.every=5"]), tmp_path)
    assert UTILISATION not in outcome.metrics
    assert UTILISATION not in (tmp_path / "metrics.csv").read_text()
