"""How long a training step waits for its batch: every task's data against a step of the smallest model on them."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from functools import partial

import torch
from omegaconf import MissingMandatoryValue

from benchmarks.step import trial
from swapformer.errors import UsageError
from swapformer.paths import conf_dir
from swapformer.study.config.compose import compose, task_of
from swapformer.study.config.hydra_errors import explained
from swapformer.task.base import Task
from swapformer.tools.cost.ratio import Ratio, compare, in_turn
from swapformer.training.assemble import Config, build_task
from swapformer.training.data import TrainingStream

STEPS = 64
"""A multiple of the batches that synthetic tasks make at once: the ones that are made and not used would count."""


def waiting(names: Sequence[str], overrides: Sequence[str], rounds: int) -> Iterator[Ratio]:
    """For each task, all if none is named, the time of making a batch over that of a step with it, waiting included."""
    for name in names or sorted(path.stem for path in (conf_dir() / "task").glob("*.yaml")):
        try:
            with explained([f"task={name}", *overrides]):
                config = _config(name, overrides)
        except UsageError as error:
            if names or not isinstance(error.__cause__, MissingMandatoryValue):
                raise
            continue  # it needs a file of the user's own
        pairs = in_turn(partial(making, config), partial(trial, config), rounds)
        yield compare(f"batch / step of {name}", "ms", pairs, "≤ 0.05", lambda ratio: ratio <= 0.05)


def making(config: Config) -> float:
    """Milliseconds of a batch on its way to a training step."""
    torch.set_num_threads(config["trainer"]["threads"])
    task = build_task(config)
    since = time.perf_counter()
    for _ in TrainingStream(task, config["data_seed"], 0, STEPS, config["trainer"]["accumulate_grad_batches"]):
        pass
    return 1000 * (time.perf_counter() - since) / STEPS


def _config(name: str, overrides: Sequence[str]) -> Config:
    """A short trial of the smallest model that can do the task."""
    shared = [f"task={name}", "model/size=nano", f"budget.steps={STEPS}", "eval.every=1000000", *overrides]
    topology = _topology(task_of(compose(shared)))
    return compose(["checkpoint_every=1000000", f"model/topology={topology}", *shared])


def _topology(task: Task) -> str:
    if task.interface.source:
        return "encoder_decoder"
    return "decoder" if task.predicts_next else "encoder"
