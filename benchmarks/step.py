"""Training steps: against a bare PyTorch loop, against making the batch, and with a mirror to Weights & Biases."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import torch
from lightning import Callback, LightningModule, Trainer
from omegaconf import MissingMandatoryValue
from torch import Tensor
from torch.nn import functional
from torch.nn.utils import clip_grad_norm_

from benchmarks.measurement import Ratio, compare, in_turn
from swapformer.errors import UsageError
from swapformer.mirror.follower import Target
from swapformer.mirror.process import mirror_trials
from swapformer.paths import conf_dir
from swapformer.results.record import RUNNING, Record
from swapformer.results.store import Store
from swapformer.study.config.compose import compose, task_of
from swapformer.study.config.hydra_errors import explained
from swapformer.targets import make
from swapformer.task.base import IGNORE, Batch
from swapformer.training import fit as training
from swapformer.training.assemble import Config, build_model, build_task
from swapformer.training.data import TrainingStream
from swapformer.training.optimiser import make_optimiser, parameter_groups
from swapformer.training.schedule import Schedule

WARM_UP = 5
"""Steps that do not count."""
BATCHES = 64
"""Batches that are made: a multiple of those that synthetic tasks make at once, so that none is left over."""
_TRIAL = "0" * 16


class TrainingClock(Callback):
    """Seconds between the end of the warm-up steps and the end of the last step."""

    def __init__(self) -> None:
        self.seconds, self._since = 0.0, 0.0

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, *args: Any) -> None:
        if trainer.global_step == WARM_UP:
            self._since = time.perf_counter()
        if trainer.global_step == trainer.max_steps:
            self.seconds = time.perf_counter() - self._since


class BareLoop:
    """A plain PyTorch loop with a trial's module, batches, optimiser, schedule and clipping; a call takes one step.

    `config`: the trial's, resolved. `device`: cpu or cuda. `compiled`: whether torch compiles the module.
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


def bare_step(config: Config) -> float:
    """Milliseconds of a step of the plain loop."""
    loop, steps = BareLoop(config), config["budget"]["steps"]
    for _ in range(WARM_UP):
        loop()
    since = time.perf_counter()
    for _ in range(WARM_UP, steps):
        loop()
    return 1000 * (time.perf_counter() - since) / (steps - WARM_UP)


def trial_step(config: Config) -> float:
    """Milliseconds of a step of a trial, its history included; evaluations and checkpoints fall outside.

    Raises RuntimeError if it did not finish.
    """
    clock = TrainingClock()
    with tempfile.TemporaryDirectory() as directory:
        outcome = training.fit(config, Path(directory), callbacks=[clock], final=False)
    if outcome.status != "finished":
        raise RuntimeError(f"the trial ended as {outcome.status}; nothing was measured")
    return 1000 * clock.seconds / (config["budget"]["steps"] - WARM_UP)


def step_overhead(overrides: Sequence[str], rounds: int) -> list[Ratio]:
    """A trial's step over a bare step."""
    config = compose([*overrides, "budget.steps=65", "eval.every=1000000", "checkpoint_every=1000000"])
    pairs = in_turn(lambda: trial_step(config), lambda: bare_step(config), rounds)
    return [compare("training step / bare loop", "ms", pairs, "≤ 1.05", lambda ratio: ratio <= 1.05)]


def data_time(overrides: Sequence[str], rounds: int) -> Iterator[Ratio]:
    """The time of making a batch over that of a step with it, for each task=NAME, or for all tasks."""
    names = [override.removeprefix("task=") for override in overrides if override.startswith("task=")]
    overrides = [override for override in overrides if not override.startswith("task=")]
    for name in names or sorted(path.stem for path in (conf_dir() / "task").glob("*.yaml")):
        try:
            with explained([f"task={name}", *overrides]):
                config = _task_config(name, overrides)
        except UsageError as error:
            if names or not isinstance(error.__cause__, MissingMandatoryValue):
                raise
            continue  # it needs a file of the user's own
        pairs = in_turn(partial(batch_time, config), partial(trial_step, config), rounds)
        yield compare(f"batch / step of {name}", "ms", pairs, "≤ 0.05", lambda ratio: ratio <= 0.05)


def batch_time(config: Config) -> float:
    """Milliseconds of making a batch for a training step."""
    torch.set_num_threads(config["trainer"]["threads"])
    task = build_task(config)
    since = time.perf_counter()
    for _ in TrainingStream(task, config["data_seed"], 0, BATCHES, config["trainer"]["accumulate_grad_batches"]):
        pass
    return 1000 * (time.perf_counter() - since) / BATCHES


def _task_config(name: str, overrides: Sequence[str]) -> Config:
    """A short trial of the smallest model that can do the task."""
    shared = [f"task={name}", "model/size=nano", f"budget.steps={BATCHES}", "eval.every=1000000", *overrides]
    task = task_of(compose(shared))
    topology = "decoder" if task.predicts_next else "encoder"
    topology = "encoder_decoder" if task.interface.source else topology
    return compose(["checkpoint_every=1000000", f"model/topology={topology}", *shared])


def mirror_overhead(overrides: Sequence[str], steps: int, rounds: int) -> list[Ratio]:
    """A step of a trial that is mirrored offline to W&B, over a step of one that is not."""
    length = [f"budget.steps={steps}", "eval.every=100", "eval.batches=1", "checkpoint_every=1000000"]
    plain, shown = (compose([*overrides, *length, f"logger={name}"]) for name in ("none", "wandb"))
    shown["logger"] |= {"mode": "offline", "tags": []}
    pairs = in_turn(lambda: _mirrored_step(shown), lambda: _mirrored_step(plain), rounds)
    return [compare("training step mirrored offline / not", "ms", pairs, "≤ 1.02", lambda ratio: ratio <= 1.02)]


def _mirrored_step(config: Config) -> float:
    """Milliseconds of a step, evaluations included: with a mirror, from when it shows the trial to the last step."""
    clock = TrainingClock()
    with tempfile.TemporaryDirectory() as directory:
        store = Store(directory)
        with _running(store, config):
            training.fit(dict(config), store.directory(_TRIAL), callbacks=[clock], final=False)
    return 1000 * clock.seconds / (config["budget"]["steps"] - WARM_UP)


@contextmanager
def _running(store: Store, config: Config) -> Iterator[None]:
    """Hold the trial's lock while the block runs, so that the mirror takes it to be running.

    Raises UsageError if the mirror did not show it.
    """
    store.prepare()
    with mirror_trials([(Target(_TRIAL), config)], store, quiet=True), store.lock(_TRIAL):
        store.write(Record(_TRIAL, RUNNING, attempts=1))
        if config["logger"]:
            _wait_for(Path(store.runs_dir) / "mirror" / "wandb")
        yield


def _wait_for(folder: Path, seconds: float = 120.0) -> None:
    until = time.monotonic() + seconds
    while not list(folder.glob(f"offline-run-*/*{_TRIAL}.wandb")):
        if time.monotonic() > until:
            raise UsageError(f"the mirror showed nothing within {seconds:.0f} seconds; nothing was measured")
        time.sleep(0.1)
