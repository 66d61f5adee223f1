"""Runs probes at moments of a trial: before training, within it without touching it, and at its end."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import ExitStack, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from lightning import Callback, LightningModule, Trainer
from lightning.pytorch.utilities.seed import isolate_rng

from swapformer.model.topology import Topology
from swapformer.probes.base import Finding, finding_of, make_probe
from swapformer.probes.gradients import training_gradients
from swapformer.results.artifacts import Artifact, discard_later_moments, write_artifact
from swapformer.results.moments import END, Moment, at_moment, moment_text, steps_of, without_moments
from swapformer.results.shapes import Profile
from swapformer.task.base import Task
from swapformer.training.assemble import Config, build_in_precision
from swapformer.training.callbacks import TrainingMonitor
from swapformer.training.warm_start import load_initial_weights

log = logging.getLogger(__name__)


def starting_model(config: Config, task: Task) -> Topology:
    """The model of a trial as it is before the first step, in evaluation mode on the CPU."""
    model = build_in_precision(config, task.interface)
    if config["init_from"] is not None:
        load_initial_weights(model, task, config)
    return model.eval()


def measure(node: Mapping[str, Any], model: Topology, task: Task, config: Config, moment: Moment = END) -> Finding:
    """Run a probe on a trial's model, with the gradients that it asks for; names of its findings bear the moment."""
    probe = make_probe(node, config)
    gradients = training_gradients(model, task, config, probe.gradient_batch) if probe.gradients else nullcontext()
    with gradients, torch.no_grad():
        found = finding_of(probe, model, task)
    return Finding(
        {at_moment(name, moment): value for name, value in found.metrics.items()},
        {name: replace(s, moments=[str(moment)]) if isinstance(s, Profile) else s for name, s in found.shapes.items()},
        [at_moment(name, moment) for name in found.exact],
    )


def store_finding(directory: Path, probe: str, node: Mapping[str, Any], moment: Moment, found: Finding) -> None:
    """Keep what a probe found at a moment as an artifact of the trial in `directory`."""
    artifact = Artifact(without_moments(dict(node)), found.metrics, found.shapes, exact=tuple(found.exact))
    write_artifact(directory, at_moment(probe, moment), artifact)


class MomentProbes(Callback):
    """Runs probes after some of a training's steps, without changing it.

    They look at another model that has the weights and buffers which an evaluation would use, on the CPU and in
    evaluation mode: what a replay of a checkpoint of that step would see. The training's own model is only read, and
    all random states are put back. What is found is kept as an artifact, and its numbers are written into the history
    at their step. A moment comes before the checkpoint of its step, so that a resumed trial measures what its
    checkpoint has not seen, and nothing else. A probe that fails is noted, and the training goes on.

    Args:
        config: the trial's resolved configuration.
        directory: the trial's folder.
    """

    def __init__(self, config: Config, directory: Path) -> None:
        self.config, self.directory = config, directory
        self.steps = {name: steps_of(node) for name, node in config["probes"].items()}
        self._model: Topology | None = None

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        discard_later_moments(self.directory, trainer.global_step)

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        step = trainer.global_step
        due = [name for name, steps in self.steps.items() if step in steps]
        if due and (batch_idx + 1) % trainer.accumulate_grad_batches == 0:
            with isolate_rng(), ExitStack() as paused:
                for monitor in _monitors(trainer):
                    paused.enter_context(monitor.paused(pl_module))
                for name in due:
                    self._look(name, step, trainer, pl_module)

    def _look(self, name: str, step: int, trainer: Trainer, module: Any) -> None:
        try:
            model = self._copy(module.evaluated_weights(), module.task)
            found = measure(self.config["probes"][name], model, module.task, self.config, step)
        except Exception as error:
            log.exception("the probe %s failed %s", name, moment_text(step))
            note = f"the probe {name} failed {moment_text(step)}: {type(error).__name__}: {error}"
            module.notes = tuple(dict.fromkeys([*module.notes, note]))
            return
        store_finding(self.directory, name, self.config["probes"][name], step, found)
        numbers = {metric.rpartition(":")[0]: float(value) for metric, value in found.metrics.items()}
        for monitor in _monitors(trainer):
            monitor.write(step, numbers)

    def _copy(self, weights: Mapping[str, Any], task: Task) -> Topology:
        """Another model, with these weights."""
        if self._model is None:
            self._model = build_in_precision(self.config, task.interface)
        self._model.load_state_dict(weights)
        return self._model.eval()


def _monitors(trainer: Trainer) -> list[TrainingMonitor]:
    """The callbacks that write the history and measure the time of training."""
    callbacks: list[Callback] = trainer.callbacks  # type: ignore[attr-defined]
    return [each for each in callbacks if isinstance(each, TrainingMonitor)]
