"""What Lightning and our callbacks cost: a training step of a preset against a bare loop over the same module."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from hydra.utils import instantiate
from lightning import Callback, LightningModule, Trainer
from torch.nn import functional
from torch.nn.utils import clip_grad_norm_

from swapformer.bench.ratio import Ratio, compare, in_turn
from swapformer.study.config import compose
from swapformer.task.base import IGNORE
from swapformer.training import fit as training
from swapformer.training.assemble import Config, build_model, build_task
from swapformer.training.optimiser import make_optimiser, parameter_groups

WARM_UP = 5


class _Clock(Callback):
    """Seconds between the end of the warm-up steps and the end of the last step."""

    def __init__(self) -> None:
        self.seconds, self._since = 0.0, 0.0

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, *args: Any) -> None:
        if trainer.global_step == WARM_UP:
            self._since = time.perf_counter()
        if trainer.global_step == trainer.max_steps:
            self.seconds = time.perf_counter() - self._since


def bare(config: Config) -> float:
    """Milliseconds of a step of a plain PyTorch loop: same module, batches, optimiser, schedule and clipping."""
    torch.set_num_threads(config["trainer"]["threads"])
    task = build_task(config)
    model = build_model(config, task.interface)
    optimiser = make_optimiser(config["optim"])(parameter_groups(model, config["optim"]))
    schedule, steps, peak = instantiate(config["schedule"]), config["budget"]["steps"], config["optim"]["lr"]
    since = 0.0
    for step in range(steps):
        if step == WARM_UP:
            since = time.perf_counter()
        for group in optimiser.param_groups:
            group["lr"] = peak * schedule.factor(step, steps)
        batch = task.train_batch(config["data_seed"], step)
        logits = model(batch.inputs)
        loss = functional.cross_entropy(logits.flatten(0, 1), batch.targets.flatten(), ignore_index=IGNORE)
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        clip_grad_norm_(model.parameters(), config["trainer"]["gradient_clip_val"])
        optimiser.step()
    return 1000 * (time.perf_counter() - since) / (steps - WARM_UP)


def trial(config: Config) -> float:
    """Milliseconds of a step of a trial, its history included; evaluations and checkpoints fall outside."""
    clock = _Clock()
    with tempfile.TemporaryDirectory() as directory:
        training.fit(config, Path(directory), callbacks=[clock], final=False)
    return 1000 * clock.seconds / (config["budget"]["steps"] - WARM_UP)


def overhead(overrides: Sequence[str], rounds: int) -> Ratio:
    """A trial's step over a bare step."""
    config = compose([*overrides, "budget.steps=65", "eval.every=1000000", "checkpoint_every=1000000"])
    pairs = in_turn(lambda: trial(config), lambda: bare(config), rounds)
    return compare("training step / bare loop", "ms", pairs, "≤ 1.05", lambda ratio: ratio <= 1.05)
