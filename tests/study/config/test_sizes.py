"""Memory: what a step takes, and by which a size is refused, asked of the machine and never of CUDA."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed._tools.mem_tracker import MemTracker
from torch.nn import functional

from swapformer.model.stack import stacks
from swapformer.study.config import sizes
from swapformer.study.config.compose import compose, task_of
from swapformer.study.config.cost import step_peak
from swapformer.training.assemble import build_model


@pytest.mark.parametrize(("says", "bytes_"), [("81559\\n81559", 81559 * 2**20), ("[N/A]", 2.0**44), ("", 2.0**44)])
def test_the_memory_of_a_gpu_is_what_its_driver_says(
    says: str, bytes_: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stub = tmp_path / "nvidia-smi"
    stub.write_text(f"#!/bin/sh\nprintf '{says}'\n")
    stub.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: pytest.fail("CUDA was asked"))
    sizes.memory.cache_clear()
    assert sizes.memory("gpu") == bytes_
    sizes.memory.cache_clear()


TEXT = ["task=copy", "task.lengths=[2,60]", "task.batch_size=16", "trainer.precision=bf16-mixed"]
MODELS = {
    "nano": ["model/size=nano"],
    "micro": ["model/size=micro"],
    "deep, continued from two layers": ["model/size=nano", "model.num_layers=12"],
    "deep and wide": ["model/size=micro", "model.num_layers=10"],
    "float32": ["model/size=nano", "trainer.precision=32-true"],
    "bias by position": ["model/size=nano", "model/position=t5"],
    "gated, rms norm, rope": ["model/size=micro", "model/ffn=glu", "model/norm=rmsnorm", "model/position=rope"],
    "dropout": ["model/size=nano", "model.dropout=0.1"],
    "grouped keys": ["model/size=nano", "model/attention=gqa", "model.attention.num_kv_heads=2"],
    "linear attention": ["model/size=nano", "model/attention=linear"],
    "layers computed again": ["model/size=nano", "model.num_layers=12", "trainer.gradient_checkpointing=true"],
    "reading weights": ["model/size=nano", "model/kernel=reference"],
}


def tracked_peak(config: Any) -> int:
    """By torch's own tracker, over all layers of the model."""
    task = task_of(config)
    model = build_model(config, task.interface).train()
    for stack in stacks(model).values():
        stack.checkpointed = config["trainer"]["gradient_checkpointing"]
    with FakeTensorMode(allow_non_fake_inputs=True):
        model.to_empty(device="cpu")
        rows, length = config["task"]["batch_size"], task.train_length
        given, tracker = model.example(rows, length, "cpu"), MemTracker()
        tracker.track_external(model)
        with tracker:
            with torch.autocast("cpu", torch.bfloat16, enabled=config["trainer"]["precision"] == "bf16-mixed"):
                logits = model(*given)
            functional.cross_entropy(logits.float().flatten(0, 1), torch.zeros(rows * length).long()).backward()
        found = tracker.get_tracker_snapshot("peak")
    moments = 8 * sum(parameter.numel() for parameter in model.parameters())
    return int(sum(each["Total"] for each in found.values())) + moments


QUICK = ("nano", "float32", "grouped keys")
"""The others are counted by `make evidence`."""


@pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.evidence) for name in MODELS]
)
def test_the_peak_of_a_step_is_torchs_own_within_15_percent(name: str) -> None:
    config = compose([*TEXT, *MODELS[name]])
    found = step_peak(config, task_of(config), config["task"]["batch_size"])
    assert found == pytest.approx(tracked_peak(config), rel=0.15)


def test_a_peak_without_the_loss_would_not_be(monkeypatch: pytest.MonkeyPatch) -> None:
    """The planted fault: of a small model with a large vocabulary most is logits."""
    config = compose([*TEXT, "model/size=nano", "task.symbols=5000"])
    peak = step_peak(config, task_of(config), 16)
    assert peak == pytest.approx(tracked_peak(config), rel=0.15)
    monkeypatch.setattr("swapformer.study.config.cost.total_loss", lambda of, answer, targets: answer.sum())
    assert step_peak(config, task_of(config), 16) < 0.85 * peak
