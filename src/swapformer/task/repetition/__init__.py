"""Sequences that go on as they began: a period, a repeated passage, an order."""

from swapformer.task.repetition.induction import Induction
from swapformer.task.repetition.ordered import Ordered
from swapformer.task.repetition.periodic import Periodic

__all__ = ["Induction", "Ordered", "Periodic"]
