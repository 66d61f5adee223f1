"""The base of probes, which look at a trained model and never change it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, Literal

from swapformer.model.topology import Topology
from swapformer.ranges import Declared
from swapformer.results.moments import without_moments
from swapformer.results.shapes import Finding as Finding
from swapformer.targets import make
from swapformer.task.base import Task
from swapformer.training.assemble import Config
from swapformer.training.data import EvaluationStream, drawn_position_range

GradientBatch = Literal["train", "val"]


class Probe(Declared, ABC):
    """Base of probes: `measure` looks at a model in evaluation mode, under no_grad.

    Every probe has the setting `at`, which is not its own: the moments at which it looks, `[end]` unless said.

    Attributes:
        gradients: whether, when `measure` is called, each trained weight has in `.grad` the gradient of the training
            loss on one fixed batch (see `probes.gradients`).
        gradient_batch: that batch: `train`, the first that the training sees, or `val`, the first validation batch.
    """

    gradients: bool = False
    gradient_batch: GradientBatch = "train"

    def attach(self, config: Config) -> None:
        """Take what it needs of the trial's resolved configuration; called before anything else is asked."""

    def variants(self) -> Mapping[str, Config]:
        """Other configurations, by name, in which it evaluates the trial's weights: each must pass the rules."""
        return {}

    def unsuited(self, model: Topology, task: Task) -> str | None:
        """The reason why nothing could be measured, and what would work; asked before anything is trained.

        Only what is stated of the model may be read: its weights may have no numbers.
        """
        return None

    @abstractmethod
    def measure(self, model: Topology, task: Task) -> Finding:
        """The findings on the task's validation data, if that suits the probe (see `finding_of`)."""


def finding_of(probe: Probe, model: Topology, task: Task) -> Finding:
    """The findings of a probe. Raises ValueError with the reason where nothing could be measured."""
    if problem := probe.unsuited(model, task):
        raise ValueError(problem)
    return probe.measure(model, task)


def validation(model: Topology, task: Task, batches: int, name: str = "") -> EvaluationStream:
    """The first batches of the validation set of a name, by default of the one that is like training."""
    source = next(item for item in task.evaluation("val") if item.name == name)
    return EvaluationStream(source, batches, drawn_position_range(model))


def make_probe(node: Mapping[str, Any], config: Config) -> Probe:
    """The probe of a node in a trial's configuration, which says beside its settings at which moments it looks."""
    probe: Probe = make(without_moments(node), Probe)
    probe.attach(config)
    return probe
