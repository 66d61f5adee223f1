"""A task of two padded batches, for the tests of probes."""

from __future__ import annotations

from torch import Tensor

from swapformer.conformance.subject import VOCABULARY, ids
from swapformer.interface import Interface
from swapformer.task.base import Batch, EvaluationSet


class PaddedBatches:
    """Two validation batches [B, T] with padding, and a longer evaluation set that no probe may ask for.

    With `equal` the tokens of a row are the same, so that attention gives each token its own value.
    """

    interface = Interface(VOCABULARY)

    def __init__(self, padding_BT: Tensor, *, equal: bool = False) -> None:
        self.padding, self.equal = padding_BT, equal

    def batch(self, index: int) -> Batch:
        rows, length = self.padding.shape
        inputs = ids(rows, 1 if self.equal else length, seed=index).expand(rows, length)
        return Batch(inputs=inputs, targets=inputs, padding=self.padding)

    def evaluation(self, split: str) -> list[EvaluationSet]:
        assert split == "val"
        return [EvaluationSet("", 2, self.batch), EvaluationSet("@9", 2, lambda index: 1 / 0)]  # type: ignore[arg-type, return-value]
