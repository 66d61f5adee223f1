"""Causal language modelling of Python source whose tokens say where in the syntax tree they stand.

Telling what each token of Python source is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Literal

import numpy as np
import torch
from torch import Tensor
from torchmetrics import MetricCollection

from swapformer.errors import UsageError
from swapformer.interface import MAIN, Interface, Readout
from swapformer.random import stream
from swapformer.task.annotations import Arrays, annotations_of
from swapformer.task.base import IGNORE, Batch, EvaluationSet, Split
from swapformer.task.metrics import DIRECTIONS, class_metrics
from swapformer.task.python_syntax import ROLES, TAGS, Parsed, of_tokens, roles, syntax
from swapformer.task.settings import presence, shares
from swapformer.task.source import Source
from swapformer.task.text import Text
from swapformer.task.text_task import Packing, TextTask
from swapformer.task.tokeniser import Tokeniser
from swapformer.task.tokeniser.base import Written

_KINDS = {"block": np.uint16, "scope": np.uint16, "definition": np.uint8}
_MOST = 1 << 16
"""Blocks of a file: two files' numbers never meet."""


class SourceCode(Text):
    """Predict each next token of Python source, as Text does.

    Tags of every place: `block`, the innermost compound statement; `scope`, the innermost function or class; no two
    files share a number. `definition`: 1 where the name of a function or class is defined. See swapformer.task.python_syntax.
    UsageError: a file that is no Python source, with its line.
    """

    tags = TAGS

    def __init__(
        self,
        *,
        source: Source,
        tokeniser: Tokeniser,
        split: Sequence[float] = (0.9, 0.05, 0.05),
        block: int = 64,
        eval_lengths: Sequence[int | str] = (),
        batch_size: int = 16,
        packing: Packing = "blocks",
        reset_positions: bool = False,
    ) -> None:
        super().__init__(
            source=source, tokeniser=tokeniser, split=split, block=block, eval_lengths=eval_lengths,
            batch_size=batch_size, packing=packing, reset_positions=reset_positions,
        )  # fmt: skip
        self.said = annotations_of(source, self.tokeniser, self.corpus, shares(split), _KINDS, tags_of)

    def fingerprint(self) -> str:
        """SHA-256 of the corpus and of the tags of its tokens."""
        return self.said.fingerprint

    def _batch(self, split: Split, places: Tensor, length: int) -> Batch:
        batch = super()._batch(split, places, length)
        numbers = {"definition": 0, "block": _MOST, "scope": _MOST}
        file = self.documents(split, places, length)
        tags = {name: self.said.take(split, name, places, length) + file * most for name, most in numbers.items()}
        return replace(batch, tags=tags)


def tags_of(parsed: Parsed, written: Written) -> Arrays:
    """The TAGS of the tokens of a file."""
    found = of_tokens(parsed.text, syntax(parsed), written.starts, written.ends)
    if found["block"].max(initial=0) >= _MOST:
        raise UsageError(f"a file must have fewer than {_MOST} blocks, but {parsed.name} has more; leave it out")
    return found


_NONE = 255


class Roles(TextTask):
    """The role of each token of Python source: keyword, operator, string …, and of a name whether it is called,
    defined, imported, a parameter, an attribute … (swapformer.task.python_syntax.ROLES).

    `source` holds Python files. Python's tokens are not the tokeniser's: the answer is asked for where a token of
    Python begins, at the tokeniser's token that holds its first character (where several begin in one, for the first of
    them), and nowhere else. A batch is `batch_size` blocks of `block` tokens at random places of the training text;
    evaluation cuts a split into blocks as Text does. `segments`: as in Masked.
    UsageError: a file that is no Python source, with its line.
    """

    directions = DIRECTIONS
    predicts_next = False
    classes = ROLES

    def __init__(
        self,
        *,
        source: Source,
        tokeniser: Tokeniser,
        split: Sequence[float] = (0.9, 0.05, 0.05),
        block: int = 64,
        eval_lengths: Sequence[int | str] = (),
        batch_size: int = 16,
        segments: bool = False,
    ) -> None:
        self.segments = 2 if presence("segments", segments) else 0
        self.tags = ("segment",) if self.segments else ()
        super().__init__(
            source=source, tokeniser=tokeniser, split=split, block=block, eval_lengths=eval_lengths,
            batch_size=batch_size,
        )  # fmt: skip
        self.said = annotations_of(source, self.tokeniser, self.corpus, shares(split), {"role": np.uint8}, roles_of)

    @property
    def interface(self) -> Interface:
        return Interface(
            self.vocab_size, segments=self.segments, readouts={MAIN: Readout(len(ROLES), "classes", "place")}
        )

    def needs(self, length: int) -> int:
        return length

    def train_batch(self, seed: int, step: int) -> Batch:
        places = self.draw_places(stream("train", int(seed), int(step)), self.block)
        return self._batch("train", places, self.block)

    def evaluation(self, split: Literal["val", "test"]) -> list[EvaluationSet]:
        if len(self.ids[split]) == 0:
            return []
        lengths = self.lengths_by_set
        return [
            EvaluationSet(name, len(batches), partial(self._evaluation_batch, split, batches, lengths[name]))
            for name, batches in self.blocks(split, lengths, ahead=0).items()
        ]

    def _evaluation_batch(self, split: Split, places: Sequence[Tensor], length: int, index: int) -> Batch:
        return self._batch(split, places[index], length)

    def _batch(self, split: Split, places: Tensor, length: int) -> Batch:
        labels = self.said.take(split, "role", places, length)
        return Batch(
            inputs=self.windows(split, places, length),
            targets=labels.masked_fill(labels == _NONE, IGNORE),
            tags={name: torch.zeros_like(labels) for name in self.tags},
        )

    def fingerprint(self) -> str:
        """SHA-256 of the corpus and of the roles of its tokens."""
        return self.said.fingerprint

    def metrics(self, answer: str = MAIN) -> MetricCollection:
        return class_metrics(len(ROLES))


def roles_of(parsed: Parsed, written: Written) -> Arrays:
    """The number of the role at each token of a file; _NONE where no token of Python begins."""
    number = {name: index for index, name in enumerate(ROLES)}
    spans = roles(parsed)
    found = np.full(len(written.ids), _NONE, dtype=np.uint8)
    begins = np.array([span.start for span in spans], dtype=np.int64)
    # Backwards, so that the first of several in one token stays.
    places = np.searchsorted(written.ends, begins, side="right")
    for place, span in zip(places[::-1], spans[::-1], strict=True):
        if place < len(found) and written.starts[place] <= span.start:
            found[place] = number[span.label]
    return {"role": found}
