"""What Lightning and our callbacks cost: a training step of a preset against a bare loop over the same module."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from lightning import Callback, LightningModule, Trainer
from torch import Tensor
from torch.nn import functional
from torch.nn.utils import clip_grad_norm_

from swapformer.study.config.compose import compose
from swapformer.targets import make
from swapformer.task.base import IGNORE, Batch
from swapformer.tools.cost.ratio import Ratio, compare, in_turn
from swapformer.training import fit as training
from swapformer.training.assemble import Config, build_model, build_task
from swapformer.training.optimiser import make_optimiser, parameter_groups
from swapformer.training.schedule import Schedule

WARM_UP = 5


class Clock(Callback):
    """Seconds between the end of the warm-up steps and the end of the last step."""

    def __init__(self) -> None:
        self.seconds, self._since = 0.0, 0.0

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, *args: Any) -> None:
        if trainer.global_step == WARM_UP:
            self._since = time.perf_counter()
        if trainer.global_step == trainer.max_steps:
            self.seconds = time.perf_counter() - self._since


class BareLoop:
    """A plain PyTorch loop with a trial's module, batches, optimiser, schedule and clipping: call it for one step.

    Args:
        config: the trial's resolved configuration.
        device: where it runs.
        compiled: whether torch compiles the module.
    """

    def __init__(self, config: Config, device: str = "cpu", *, compiled: bool = False) -> None:
        torch.set_num_threads(config["trainer"]["threads"])
        self.config, self.device, self.task = config, device, build_task(config)
        self.model = build_model(config, self.task.interface).to(device)
        self.run = torch.compile(self.model) if compiled else self.model
        groups = parameter_groups(self.model, config["optim"])
        self.optimiser, self.schedule = make_optimiser(config["optim"])(groups), make(config["schedule"], Schedule)
        self.steps = 0

    def __call__(self) -> None:
        horizon = self.config["budget"]["steps"]
        for group in self.optimiser.param_groups:
            group["lr"] = self.config["optim"]["lr"] * self.schedule.factor(self.steps % horizon, horizon)
        batch = self.task.train_batch(self.config["data_seed"], self.steps)
        self.optimiser.zero_grad()
        self.loss(batch.to(self.device)).backward()  # type: ignore[no-untyped-call]
        clip_grad_norm_(self.model.parameters(), self.config["trainer"]["gradient_clip_val"])
        self.optimiser.step()
        self.steps += 1

    def loss(self, batch: Batch) -> Tensor:
        """Mean loss over a batch's targets."""
        logits = self.run(batch.inputs)
        return functional.cross_entropy(logits.flatten(0, 1), batch.targets.flatten(), ignore_index=IGNORE)


def bare(config: Config) -> float:
    """Milliseconds of a step of the plain loop."""
    loop, steps = BareLoop(config), config["budget"]["steps"]
    for _ in range(WARM_UP):
        loop()
    since = time.perf_counter()
    for _ in range(WARM_UP, steps):
        loop()
    return 1000 * (time.perf_counter() - since) / (steps - WARM_UP)


def trial(config: Config) -> float:
    """Milliseconds of a step of a trial, its history included; evaluations and checkpoints fall outside.

    Raises:
        RuntimeError: if it did not finish.
    """
    clock = Clock()
    with tempfile.TemporaryDirectory() as directory:
        outcome = training.fit(config, Path(directory), callbacks=[clock], final=False)
    if outcome.status != "finished":
        raise RuntimeError(f"the trial ended as {outcome.status}; nothing was measured")
    return 1000 * clock.seconds / (config["budget"]["steps"] - WARM_UP)


def overhead(overrides: Sequence[str], rounds: int) -> Ratio:
    """A trial's step over a bare step."""
    config = compose([*overrides, "budget.steps=65", "eval.every=1000000", "checkpoint_every=1000000"])
    pairs = in_turn(lambda: trial(config), lambda: bare(config), rounds)
    return compare("training step / bare loop", "ms", pairs, "≤ 1.05", lambda ratio: ratio <= 1.05)
