"""Hiding tokens and asking what they were (Devlin et al. 2018, arXiv:1810.04805).

Masked language modelling (Devlin et al. 2018, arXiv:1810.04805)."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import partial
from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import pad
from torchmetrics import MetricCollection

from swapformer.errors import UsageError
from swapformer.interface import MAIN, Interface
from swapformer.random import stream
from swapformer.task.base import IGNORE, Batch, EvaluationSet, Split
from swapformer.task.metrics import directions_of, sequence_metrics
from swapformer.task.settings import presence, whole_number
from swapformer.task.source import Source
from swapformer.task.text_task import Packing, TextTask
from swapformer.task.tokeniser import CLASSIFY, MASK, PAD, SEPARATE, Tokeniser

SPECIAL = (PAD, CLASSIFY, SEPARATE, MASK)
"""What BERT's tasks write besides text: all of them ask for all of it, so that one can start from another's weights."""

METRICS = ("loss", "loss_se", "perplexity", "accuracy", "accuracy_se")


class MaskedTask(TextTask):
    """What tasks share in which some tokens are hidden.

    `rate`: of the tokens of text in a sequence (special ones and <unk> are none) so many are chosen, rounded, and at
    least one. `masked` of the chosen become [MASK], `random` of them any token of text, and the others stay as they
    are; the loss is on all that were chosen. The choice is a pure function of (seed, step), and fixed in evaluation.
    UsageError: shares that are none.
    """

    predicts_next = False
    directions = directions_of(METRICS)
    around: int
    """Special tokens in each sequence."""

    def __init__(
        self,
        *,
        source: Source,
        tokeniser: Tokeniser,
        split: Sequence[float],
        block: int,
        eval_lengths: Sequence[int | str],
        batch_size: int,
        rate: float,
        masked: float,
        random: float,
        packing: Packing = "blocks",
        reset_positions: bool = False,
    ) -> None:
        for name, share in (("rate", rate), ("masked", masked), ("random", random)):
            if not isinstance(share, int | float) or isinstance(share, bool) or not 0 <= share <= 1:
                raise UsageError(f"task.{name} must be a share from 0 to 1, but is {share!r}")
        if rate == 0 or masked + random > 1:
            raise UsageError(
                f"task.rate must be above 0, and task.masked and task.random at most 1 together, but they are {rate}, "
                f"{masked} and {random}; take 0.15, 0.8 and 0.1"
            )
        self.rate, self.masked, self.random = rate, masked, random
        whole_number("block", block, self.around + 1)
        super().__init__(
            source=source, tokeniser=tokeniser, split=split, block=block, eval_lengths=eval_lengths,
            batch_size=batch_size, special=SPECIAL, packing=packing, reset_positions=reset_positions,
        )  # fmt: skip
        for length in self.eval_lengths:
            whole_number("eval_lengths entries", length, self.around + 1)

    def needs(self, length: int) -> int:
        return length - self.around

    def hide(self, ids: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """What the model sees of `ids` [B,T], and the targets: the chosen tokens, elsewhere IGNORE."""
        learned = self.corpus.learned
        text = ids >= learned.special
        if learned.unknown is not None:
            text &= ids != learned.unknown
        # The places of text in a random order; the first of each row are chosen.
        shuffled = torch.rand(ids.shape, generator=generator).masked_fill(~text, 2.0).argsort(1)
        order = torch.empty_like(shuffled).scatter_(1, shuffled, torch.arange(ids.shape[1]).expand_as(shuffled))
        count = (self.rate * text.sum(1, keepdim=True)).round().clamp(min=1)
        chosen = text & (order < count)
        fate = torch.rand(ids.shape, generator=generator)
        seen = torch.where(chosen & (fate < self.masked), self.tokeniser.ids[MASK], ids)
        replaced = chosen & (fate >= self.masked) & (fate < self.masked + self.random)
        return torch.where(replaced, self._any(ids, generator), seen), ids.masked_fill(~chosen, IGNORE)

    def _any(self, ids: Tensor, generator: torch.Generator) -> Tensor:
        """Random tokens of text, each equally often, as many as `ids`."""
        learned = self.corpus.learned
        first, unknown = learned.special, learned.unknown
        number = self.vocab_size - first - (unknown is not None)
        drawn = torch.randint(number, ids.shape, generator=generator) + first
        return drawn if unknown is None else drawn + (drawn >= unknown)

    def metrics(self, answer: str = MAIN) -> MetricCollection:
        return sequence_metrics(METRICS)

    def fingerprint(self) -> str:
        """SHA-256 of the corpus and of a first batch: a change of what is hidden shows although no setting changed."""
        batch = self.train_batch(0, 0)
        drawn = b"".join(part.numpy().tobytes() for part in (batch.inputs, batch.targets))
        return hashlib.sha256(f"{type(self).__name__} {super().fingerprint()}".encode() + drawn).hexdigest()


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
