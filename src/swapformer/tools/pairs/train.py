"""Twenty steps on one batch: what is accepted must train."""

from __future__ import annotations

import math
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from swapformer.study.config.compose import Config
from swapformer.task.base import Task
from swapformer.training.assemble import build_model
from swapformer.training.data import TrainingStream, drawn_position_range
from swapformer.training.module import TrialModule

STEPS = 20


@dataclass(frozen=True)
class Outcome:
    """The task's loss on the batch before the first step and after the last; `fault` says what went wrong."""

    start: float = math.nan
    end: float = math.nan
    fault: str | None = None


def train(config: Config, task: Task, steps: int = STEPS) -> Outcome:
    """Train on one batch by the trial's own step, optimiser and schedule, and compare its loss before and after.

    There is no dropout, and what else is random (the depth that stochastic depth drops, the positions that are drawn)
    is drawn alike at every step, as a trial's first step draws it: so the two losses differ by the weights alone.
    """
    assert config["model"]["dropout"] == 0, "a batch's loss is compared without dropout"
    try:
        return _trained(config, task, steps)
    except Exception as error:
        frame = traceback.extract_tb(error.__traceback__)[-1]
        place = f"{Path(frame.filename).name}, line {frame.lineno}"
        return Outcome(fault=f"{type(error).__name__} where nothing should be raised ({place}): {error}")


def _trained(config: Config, task: Task, steps: int) -> Outcome:
    device = torch.device("cuda" if config["trainer"]["accelerator"] == "gpu" else "cpu")
    model = build_model(config, task.interface).to(device)
    trial = TrialModule(model, task, config).train()
    share = next(iter(TrainingStream(task, config["data_seed"], 0, 1, 1, drawn_position_range(model))))
    share = share._replace(batch=share.batch.to(device))
    made: Any = trial.configure_optimizers()
    optimiser, schedule = made["optimizer"], made["lr_scheduler"]["scheduler"]
    start = math.nan
    for step in range(steps):
        optimiser.zero_grad()
        trial.training_step(share, 0).backward()  # type: ignore[no-untyped-call]
        start = float(trial.loss_share) if step == 0 else start
        if (broken := _not_finite(model)) is not None:
            return Outcome(start, fault=f"at step {step}, the gradient of {broken} is not finite")
        trial.configure_gradient_clipping(optimiser, config["trainer"]["gradient_clip_val"])
        optimiser.step()
        schedule.step()
    trial.training_step(share, 0)
    end = float(trial.loss_share)
    if not end < start:  # nor if one is no number
        return Outcome(start, end, f"the loss must fall in {steps} steps on one batch, but it goes {start} → {end}")
    return Outcome(start, end)


def _not_finite(model: nn.Module) -> str | None:
    """The first parameter whose gradient is not finite."""
    for name, parameter in model.named_parameters():
        if parameter.grad is not None and not parameter.grad.isfinite().all():
            return name
    return None
