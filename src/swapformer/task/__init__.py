"""Tasks: data as a pure function of (seed, step), the objective and what is measured."""

from swapformer.task.addition import Addition
from swapformer.task.base import IGNORE, Batch, EvaluationSet, Task
from swapformer.task.copy import Copy
from swapformer.task.metrics import MEASURES, SequenceMetric, sequence_metrics
from swapformer.task.text import Text

__all__ = [
    "IGNORE",
    "MEASURES",
    "Addition",
    "Batch",
    "Copy",
    "EvaluationSet",
    "SequenceMetric",
    "Task",
    "Text",
    "sequence_metrics",
]
