"""The base of probes, which look at a trained model and never change it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping

from swapformer.model.topology import Topology
from swapformer.results.shapes import Finding as Finding
from swapformer.task.base import Task
from swapformer.training.assemble import Config


class Probe(ABC):
    """Base of probes: `measure` looks at a model in evaluation mode, under no_grad."""

    def attach(self, config: Config) -> None:  # noqa: B027 (most probes need nothing of it)
        """Take what it needs of the trial's resolved configuration; called before anything else is asked."""

    def variants(self) -> Mapping[str, Config]:
        """Other configurations, by name, in which it evaluates the trial's weights: each must pass the rules."""
        return {}

    def unsuited(self, model: Topology, task: Task) -> str | None:
        """Why nothing could be measured, in words that say what would work; asked before anything is trained.

        Only what is stated of the model may be read: its weights may have no numbers.
        """
        return None

    @abstractmethod
    def measure(self, model: Topology, task: Task) -> Finding:
        """What is found on the task's validation data."""
