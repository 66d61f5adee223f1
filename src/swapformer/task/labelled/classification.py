"""Tasks that read a text or a pair of texts: classification and regression."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from swapformer.errors import UsageError
from swapformer.interface import MAIN, Interface, Readout
from swapformer.random import stream
from swapformer.task.base import Batch, Split
from swapformer.task.division import SPLITS
from swapformer.task.labelled.base import ReadingTask, Rows
from swapformer.task.measures import CLASS_DIRECTIONS
from swapformer.task.settings import column_name
from swapformer.task.value_measures import VALUE_DIRECTIONS


class Classification(ReadingTask):
    """Classify a text, or a pair of texts.

    `label`: the column of the class, a word or a whole number; the classes are those of the training rows. `balanced`:
    training draws every class equally often, and evaluation has equally many examples of each, those of the larger ones
    beyond the smallest's number being left out; then guessing has a loss of ln K and an accuracy of 1/K. Otherwise
    classes are as frequent as in the table.
    UsageError: no such column, an empty split, a class of validation or test that training lacks.
    """

    directions = CLASS_DIRECTIONS
    kind = "classes"

    def __init__(self, *, label: str = "label", balanced: bool = False, **settings: Any) -> None:
        self.answers = (column_name("label", label),)
        super().__init__(**settings)
        self.balanced = balanced
        self.classes = self.examples.classes
        self._members = {"train": self._by_class(np.array(self.examples.rows("train")))} | {
            split: self._by_class(rows) for split, rows in self.evaluated.items()
        }
        if self.balanced:
            self._require_all_classes()

    @property
    def interface(self) -> Interface:
        readout = Readout(len(self.classes), "classes", "sequence")
        return Interface(self.vocab_size, segments=self.segments, readouts={MAIN: readout})

    def _require_all_classes(self) -> None:
        for split, count in zip(SPLITS, self.examples.counts, strict=True):
            for name, members in zip(self.classes, self._members[split], strict=True):
                if count and not len(members):
                    raise UsageError(
                        f"with task.balanced=true every split must have rows of every class, but {split} has none of "
                        f"{name!r}; give more rows, leave the class out, or choose another task.split"
                    )

    def _by_class(self, rows: Rows) -> list[Tensor]:
        """Those of some examples that are of each class."""
        answers = np.asarray(self.examples.answers[rows])
        return [torch.from_numpy(rows[answers == kind]) for kind in range(len(self.classes))]

    def draw(self, generator: torch.Generator) -> Rows:
        if not self.balanced:
            return super().draw(generator)
        members = self._members["train"]
        kinds = torch.randint(len(members), (self.batch_size,), generator=generator)
        share = torch.rand(self.batch_size, generator=generator, dtype=torch.float64)
        drawn = [members[kind][int(part * len(members[kind]))] for kind, part in zip(kinds, share, strict=True)]
        return torch.stack(drawn).numpy()

    def order(self, split: Split) -> Tensor:
        if not self.balanced:
            return super().order(split)
        generator = stream("rows", split)
        fewest = min(len(members) for members in self._members[split])
        chosen = [rows[torch.randperm(len(rows), generator=generator)[:fewest]] for rows in self._members[split]]
        # One of each class in turn, so that the first batches are balanced too.
        return torch.stack(chosen, dim=1).flatten()

    def batch(self, rows: Rows) -> Batch:
        text = self.read(rows)
        targets = torch.from_numpy(np.asarray(self.examples.answers[rows]))
        return Batch(inputs=text.inputs, padding=text.padding, tags=text.tags, targets=targets)


class Regression(ReadingTask):
    """Predict a value, or several, of a text or a pair of texts.

    `values`: their columns. They are standardised by the mean and the standard deviation of the training rows, so the
    errors are in units of the latter.
    UsageError: no such column, a row without a number, an empty split, values that are all the same in training.
    """

    directions = VALUE_DIRECTIONS
    kind = "values"

    def __init__(self, *, values: Sequence[str] = ("value",), **settings: Any) -> None:
        if not values:
            raise UsageError(f"task.values must be a list of columns such as [value], but is {values!r}")
        self.answers = tuple(column_name("values entries", name) for name in values)
        super().__init__(**settings)
        training = np.asarray(self.examples.answers[: self.examples.counts[0]])
        self.mean, self.deviation = training.mean(0), training.std(0)
        for name, low, high in zip(values, training.min(0), training.max(0), strict=True):
            if low == high:
                raise UsageError(f"the column {name!r} must vary, but is {low} in every training row; remove it")

    @property
    def interface(self) -> Interface:
        readout = Readout(len(self.mean), "values", "sequence")
        return Interface(self.vocab_size, segments=self.segments, readouts={MAIN: readout})

    def batch(self, rows: Rows) -> Batch:
        text = self.read(rows)
        values = (np.asarray(self.examples.answers[rows]) - self.mean) / self.deviation
        targets = torch.from_numpy(values.astype(np.float32))
        return Batch(inputs=text.inputs, padding=text.padding, tags=text.tags, targets=targets)
