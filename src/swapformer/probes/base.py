"""The base of probes, which look at a trained model and never change it."""

from __future__ import annotations

from abc import ABC, abstractmethod

from swapformer.model.topology import Topology
from swapformer.results.shapes import Finding as Finding
from swapformer.task.base import Task


class Probe(ABC):
    """Base of probes: `measure` looks at a model in evaluation mode, under no_grad."""

    def unsuited(self, model: Topology, task: Task) -> str | None:
        """Why nothing could be measured, in words that say what would work; asked before anything is trained.

        Only what is stated of the model may be read: its weights may have no numbers.
        """
        return None

    @abstractmethod
    def measure(self, model: Topology, task: Task) -> Finding:
        """What is found on the task's validation data."""
