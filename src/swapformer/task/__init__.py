"""Tasks: data as a pure function of (seed, step), the objective and what is measured."""

from swapformer.task.arithmetic import Addition
from swapformer.task.base import IGNORE, Batch, EvaluationSet, Task
from swapformer.task.lists import Copy
from swapformer.task.masked import Masked
from swapformer.task.metrics import MEASURES, SequenceMetric, sequence_metrics
from swapformer.task.next_sentence import MaskedNSP
from swapformer.task.source import Source
from swapformer.task.spans import Spans
from swapformer.task.text import Text
from swapformer.task.text_task import TextTask
from swapformer.task.tokeniser import Tokeniser

__all__ = [
    "IGNORE",
    "MEASURES",
    "Addition",
    "Batch",
    "Copy",
    "EvaluationSet",
    "Masked",
    "MaskedNSP",
    "SequenceMetric",
    "Source",
    "Spans",
    "Task",
    "Text",
    "TextTask",
    "Tokeniser",
    "sequence_metrics",
]
