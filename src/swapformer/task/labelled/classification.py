"""Classifying texts."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor
from torchmetrics import MetricCollection

from swapformer.errors import UsageError
from swapformer.interface import MAIN, Interface, Readout
from swapformer.random import stream
from swapformer.task.base import Batch, Split, presence
from swapformer.task.class_metrics import DIRECTIONS, class_metrics
from swapformer.task.division import SPLITS
from swapformer.task.labelled.base import Rows
from swapformer.task.labelled.reading import Reading, one_column
from swapformer.task.source import Source
from swapformer.task.tokeniser import Tokeniser


class Classification(Reading):
    """Which of several classes a text, or a pair of texts, belongs to.

    `label`: the column of the class, a word or a whole number; the classes are those of the training rows. `balanced`:
    training draws every class equally often, and evaluation has equally many examples of each, those of the larger ones
    beyond the smallest's number being left out; then guessing has a loss of ln K and an accuracy of 1/K. Otherwise
    classes are as frequent as in the table.
    UsageError: no such column, an empty split, a class of validation or test that training lacks.
    """

    directions = DIRECTIONS

    def __init__(
        self,
        *,
        source: Source,
        tokeniser: Tokeniser,
        label: str = "label",
        second: str | None = None,
        balanced: bool = False,
        split: Sequence[float] = (0.8, 0.1, 0.1),
        block: int = 64,
        segments: bool = False,
        batch_size: int = 16,
    ) -> None:
        super().__init__(
            source=source, tokeniser=tokeniser, split=split, second=second, answers=[one_column("label", label)],
            kind="classes", block=block, segments=segments, batch_size=batch_size,
        )  # fmt: skip
        self.balanced = presence("balanced", balanced)
        self.classes = self.examples.classes
        self._members = {"train": self._by_class(np.array(self.examples.rows("train")))} | {
            split: self._by_class(rows) for split, rows in self.judged.items()
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
        places = self.places(rows)
        targets = torch.from_numpy(np.asarray(self.examples.answers[rows]))
        return Batch(inputs=places.inputs, padding=places.padding, tags=places.tags, targets=targets)

    def metrics(self, answer: str = MAIN) -> MetricCollection:
        return class_metrics(len(self.classes))
