"""What the tests of measurements share: small models, and a machine's lock of their own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from swapformer.measure.base import MeasuredModel, Measurement
from swapformer.measure.clock import Clock
from swapformer.results.shapes import Finding
from swapformer.study.config.compose import check, compose, task_of
from swapformer.study.launch import machine
from swapformer.targets import make
from swapformer.training.assemble import build_model

TINY = ["task=copy", "model.num_layers=1", "model.d_model=16", "model.num_heads=2"]


@pytest.fixture(autouse=True)
def own_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A lock of this test alone: the machine's own is for those who measure on it."""
    monkeypatch.setenv(machine.VARIABLE, str(tmp_path))


class Hand:
    """A clock's hand that moves when it is told to."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds

    def slow(self, function: Callable[..., Any], seconds: float) -> Callable[..., Any]:
        """The function, which takes so many seconds."""

        def slowed(*args: Any, **kwargs: Any) -> Any:
            self.seconds += seconds
            return function(*args, **kwargs)

        return slowed


@pytest.fixture
def hand() -> Hand:
    return Hand()


def subject_of(config: dict[str, Any], now: Callable[[], float] | None = None) -> MeasuredModel:
    """What a trial with this configuration measures, by a real clock or a hand."""
    task = task_of(config)
    device = torch.device("cpu")
    clock = Clock(device) if now is None else Clock(device, now)
    return MeasuredModel(config, task, build_model(config, task.interface).eval(), clock)


def measured(*overrides: str, now: Callable[[], float] | None = None) -> Finding:
    """What a measurement finds of a tiny model that no rule refuses."""
    config = compose([*TINY, *overrides])
    check(config)
    measurement: Measurement = make(config["measure"], Measurement)
    found = measurement.measure(subject_of(config, now))
    assert found.metrics.keys() <= measurement.directions().keys()
    return found
