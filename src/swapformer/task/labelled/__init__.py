"""Tasks on labelled examples: rows of a table, each a text with its class, its values or its answer."""

from swapformer.task.labelled.classification import Classification, Regression
from swapformer.task.labelled.sequence_to_sequence import SequenceToSequence

__all__ = ["Classification", "Regression", "SequenceToSequence"]
