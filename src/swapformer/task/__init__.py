"""Tasks: data as a pure function of (seed, step), what is asked of a model, and its metrics.

`conf/task/copy.yaml` is `swapformer.task.Copy`: configurations name tasks by these short paths.
"""

from typing import TYPE_CHECKING, Any

from swapformer.task.arithmetic import Addition, ModularAddition
from swapformer.task.base import IGNORE, Batch, EvaluationSet, Task
from swapformer.task.brackets import Brackets, Dyck
from swapformer.task.forecast import Forecast
from swapformer.task.labelled import Classification, Regression, SequenceToSequence
from swapformer.task.listops import ListOps
from swapformer.task.lists import Copy, Count, Maximum, Parity, Reverse, Sort
from swapformer.task.masked import Masked
from swapformer.task.measures import MEASURES
from swapformer.task.next_sentence import MaskedNSP
from swapformer.task.recall import AssociativeRecall, FactRecall, Needle
from swapformer.task.reference import Coreference, Dialogue
from swapformer.task.repetition import Induction, Ordered, Periodic
from swapformer.task.seasons import Seasons
from swapformer.task.shards import Shards
from swapformer.task.source import Source
from swapformer.task.source_code import Roles, SourceCode
from swapformer.task.spans import Spans
from swapformer.task.text import Text
from swapformer.task.text_task import TextTask
from swapformer.task.tokeniser import Tokeniser

if TYPE_CHECKING:
    from swapformer.task.metrics import SequenceMetric, sequence_metrics

__all__ = ["IGNORE", "Batch", "EvaluationSet", "Source", "Task", "TextTask", "Tokeniser"]
__all__ += ["MEASURES", "SequenceMetric", "sequence_metrics"]
__all__ += [
    "Addition",
    "Brackets",
    "Copy",
    "Count",
    "Dyck",
    "ListOps",
    "Maximum",
    "ModularAddition",
    "Parity",
    "Reverse",
]
__all__ += ["AssociativeRecall", "Coreference", "Dialogue", "FactRecall", "Induction", "Needle", "Ordered", "Periodic"]
__all__ += ["Classification", "Forecast", "Masked", "MaskedNSP", "Regression", "Roles", "Seasons"]
__all__ += ["SequenceToSequence", "Shards", "Sort", "SourceCode", "Spans", "Text"]


def __getattr__(name: str) -> Any:
    """Metrics are loaded when they are first asked for (PEP 562): torchmetrics takes seconds."""
    if name not in ("SequenceMetric", "sequence_metrics"):
        raise AttributeError(f"module 'swapformer.task' has no attribute {name!r}")
    from swapformer.task import metrics

    return getattr(metrics, name)
