"""Tasks that read a text, or two, and answer once."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from swapformer.errors import UsageError
from swapformer.task.base import Places, presence, whole_number
from swapformer.task.labelled.answers import Kind
from swapformer.task.labelled.base import Labelled, Rows
from swapformer.task.labelled.examples import Columns
from swapformer.task.source import Source
from swapformer.task.tokeniser import CLASSIFY, PAD, SEPARATE, Tokeniser


class Reading(Labelled):
    """[CLS] text [SEP], or [CLS] text [SEP] second [SEP], filled up to `block` places (Devlin et al. 2018).

    `second`: the column of a second text (null: none). What is longer than `block` is cut at its end: of two texts, the
    longer one until both are equally long. `segments`: whether the second text with its [SEP] is another segment, which
    an encoder embeds; a task with one text then has one of two segments, as models have that were trained on pairs.
    """

    def __init__(
        self,
        *,
        source: Source,
        tokeniser: Tokeniser,
        split: Sequence[float],
        second: str | None,
        answers: Sequence[str],
        kind: Kind,
        block: int,
        segments: bool,
        batch_size: int,
    ) -> None:
        texts = () if second is None else (second,)
        self.block = self.train_length = self.longest_trained = self.max_length = whole_number("block", block, 4)
        self.segments = 2 if presence("segments", segments) else 0
        self.tags = ("segment",) if self.segments else ()
        super().__init__(
            source=source, tokeniser=tokeniser, split=split, columns=Columns(texts, tuple(answers), kind),
            special=(PAD, CLASSIFY, SEPARATE), batch_size=batch_size,
        )  # fmt: skip

    def places(self, rows: Rows) -> Places:
        """What is read of the examples with these numbers [B]: [B,block]."""
        inputs = self.filler(len(rows), self.block)
        inputs[:, 0] = self.id_of(CLASSIFY)
        every, counts = np.arange(len(rows)), self._fit(rows)
        first = np.ones(len(rows), dtype=np.int64)
        ends = []
        for field, count in enumerate(counts):
            self.put(inputs, rows, field, first, count)
            inputs[every, first + count] = self.id_of(SEPARATE)
            first = first + count + 1
            ends.append(first)
        place = np.arange(self.block)
        segment = (place >= ends[0][:, None]) & (place < first[:, None])
        return Places(
            inputs=torch.from_numpy(inputs),
            padding=torch.from_numpy(place >= first[:, None]),
            tags={"segment": torch.from_numpy(segment.astype(np.int64))} if self.segments else {},
        )

    def _fit(self, rows: Rows) -> list[Rows]:
        """How many tokens of each text are read: [B] for each."""
        room = self.block - 1 - self._fields
        lengths = [self.lengths(rows, field) for field in range(self._fields)]
        if len(lengths) == 1:
            return [np.minimum(lengths[0], room)]
        first, second = lengths
        half = room // 2
        return [
            np.minimum(first, np.maximum(room - half, room - second)),
            np.minimum(second, np.maximum(half, room - first)),
        ]


def one_column(name: str, value: object) -> str:
    """`value` as the name of a column; UsageError unless it is one."""
    if not isinstance(value, str) or not value:
        raise UsageError(f"task.{name} must name a column of the table, but is {value!r}")
    return value
