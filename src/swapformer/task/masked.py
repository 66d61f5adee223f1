"""Masked language modelling (Devlin et al. 2018, arXiv:1810.04805)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import pad

from swapformer.interface import Interface
from swapformer.random import stream
from swapformer.task.base import Batch, EvaluationSet, Split, presence
from swapformer.task.masking import MaskedTask
from swapformer.task.source import Source
from swapformer.task.text_task import Packing
from swapformer.task.tokeniser import CLASSIFY, SEPARATE, Tokeniser


class Masked(MaskedTask):
    """Say what the chosen tokens of `[CLS] text [SEP]` were. A sequence has `block` places, these two included.

    `packing`, `reset_positions`: as in Text; [CLS] and [SEP] belong to the documents beside them. `segments`: whether
    the text is the first of two segments, which an encoder embeds, as models have that were trained on pairs.
    Evaluation goes through a split as Text does.
    """

    around = 2

    def __init__(
        self,
        *,
        source: Source,
        tokeniser: Tokeniser,
        split: Sequence[float] = (0.9, 0.05, 0.05),
        block: int = 64,
        eval_lengths: Sequence[int | str] = (),
        batch_size: int = 16,
        rate: float = 0.15,
        masked: float = 0.8,
        random: float = 0.1,
        packing: Packing = "blocks",
        reset_positions: bool = False,
        segments: bool = False,
    ) -> None:
        self.segments = 2 if presence("segments", segments) else 0
        self.tags = ("segment",) if self.segments else ()
        super().__init__(
            source=source, tokeniser=tokeniser, split=split, block=block, eval_lengths=eval_lengths,
            batch_size=batch_size, rate=rate, masked=masked, random=random, packing=packing,
            reset_positions=reset_positions,
        )  # fmt: skip

    @property
    def interface(self) -> Interface:
        return Interface(self.vocab_size, segments=self.segments)

    def train_batch(self, seed: int, step: int) -> Batch:
        generator = stream("train", int(seed), int(step))
        length = self.needs(self.block)
        return self._batch("train", self.draw_places(generator, length), length, generator)

    def evaluation(self, split: Literal["val", "test"]) -> list[EvaluationSet]:
        if len(self.ids[split]) == 0:
            return []
        lengths = {name: self.needs(length) for name, length in self.lengths_by_set.items()}
        return [
            EvaluationSet(name, len(batches), partial(self._evaluation_batch, split, name, batches, lengths[name]))
            for name, batches in self.blocks(split, lengths, ahead=0).items()
        ]

    def _evaluation_batch(self, split: Split, name: str, places: Sequence[Tensor], length: int, index: int) -> Batch:
        return self._batch(split, places[index], length, stream("masked", split, name, index))

    def _batch(self, split: Split, places: Tensor, length: int, generator: torch.Generator) -> Batch:
        special = self.tokeniser.ids
        text = self.windows(split, places, length)
        ids = pad(pad(text, (1, 0), value=special[CLASSIFY]), (0, 1), value=special[SEPARATE])
        inputs, targets = self.hide(ids, generator)
        tags = {name: torch.zeros_like(inputs) for name in self.tags}
        if self.packing == "blocks":
            return Batch(inputs=inputs, targets=targets, tags=tags)
        document = self.documents(split, places, length)
        document = torch.cat([document[:, :1], document, document[:, -1:]], dim=1)
        return Batch(inputs=inputs, targets=targets, document=document, position=self.positions(document), tags=tags)
