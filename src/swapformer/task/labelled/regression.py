"""Numbers that a text stands for."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torchmetrics import MetricCollection

from swapformer.errors import UsageError
from swapformer.interface import MAIN, Interface, Readout
from swapformer.task.base import Batch
from swapformer.task.labelled.base import Rows
from swapformer.task.labelled.reading import Reading, one_column
from swapformer.task.source import Source
from swapformer.task.tokeniser import Tokeniser
from swapformer.task.value_metrics import DIRECTIONS, value_metrics


class Regression(Reading):
    """The value, or values, of a text or a pair of texts.

    `values`: their columns. They are standardised by the mean and the standard deviation of the training rows, so the
    errors are in units of the latter.
    UsageError: no such column, a row without a number, an empty split, values that are all the same in training.
    """

    directions = DIRECTIONS

    def __init__(
        self,
        *,
        source: Source,
        tokeniser: Tokeniser,
        values: Sequence[str] = ("value",),
        second: str | None = None,
        split: Sequence[float] = (0.8, 0.1, 0.1),
        block: int = 64,
        segments: bool = False,
        batch_size: int = 16,
    ) -> None:
        if isinstance(values, str) or not values:
            raise UsageError(f"task.values must be a list of columns such as [value], but is {values!r}")
        super().__init__(
            source=source, tokeniser=tokeniser, split=split, second=second,
            answers=[one_column("values entries", name) for name in values], kind="values", block=block,
            segments=segments, batch_size=batch_size,
        )  # fmt: skip
        training = np.asarray(self.examples.answers[: self.examples.counts[0]])
        self.mean, self.deviation = training.mean(0), training.std(0)
        for name, low, high in zip(values, training.min(0), training.max(0), strict=True):
            if low == high:
                raise UsageError(f"the column {name!r} must vary, but is {low} in every training row; leave it out")

    @property
    def interface(self) -> Interface:
        readout = Readout(len(self.mean), "values", "sequence")
        return Interface(self.vocab_size, segments=self.segments, readouts={MAIN: readout})

    def batch(self, rows: Rows) -> Batch:
        places = self.places(rows)
        values = (np.asarray(self.examples.answers[rows]) - self.mean) / self.deviation
        targets = torch.from_numpy(values.astype(np.float32))
        return Batch(inputs=places.inputs, padding=places.padding, tags=places.tags, targets=targets)

    def metrics(self, answer: str = MAIN) -> MetricCollection:
        return value_metrics(len(self.mean))
