"""Masked language modelling (Devlin et al. 2018, arXiv:1810.04805)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from swapformer.errors import UsageError
from swapformer.interface import Interface
from swapformer.ranges import Share
from swapformer.task.base import IGNORE, Batch, Split
from swapformer.task.measures import directions_of
from swapformer.task.text_task import PackedTask, TextTask
from swapformer.task.tokeniser import CLASSIFY, MASK, PAD, SEPARATE

METRICS = ("loss", "loss_se", "perplexity", "accuracy", "accuracy_se")


class MaskedTask(TextTask):
    """Base of tasks in which some tokens are hidden, and the model says what they were.

    `rate`: of the tokens of text in a sequence (special ones and <unk> are none) so many are chosen, rounded, and at
    least one. `masked` of the chosen become [MASK], `random` of them any token of text, and the others stay as they
    are; the loss is on all that were chosen. The choice is a pure function of (seed, step), and fixed in evaluation.
    UsageError: shares that are none.
    """

    predicts_next = False
    measured = METRICS
    directions = directions_of(METRICS)
    # All of BERT's tasks have all of its special tokens, so that one can start from another's weights.
    special_tokens = (PAD, CLASSIFY, SEPARATE, MASK)
    evaluation_stream = "masked"

    def __init__(self, *, rate: Share = 0.15, masked: Share = 0.8, random: Share = 0.1, **settings: Any) -> None:
        if rate == 0 or masked + random > 1:
            raise UsageError(
                f"task.rate must be above 0, and task.masked and task.random at most 1 together, but they are {rate}, "
                f"{masked} and {random}; take 0.15, 0.8 and 0.1"
            )
        self.rate, self.masked, self.random = rate, masked, random
        super().__init__(**settings)

    def hide(self, ids: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """The inputs that the model sees of `ids` [B,T], and the targets: the chosen tokens, elsewhere IGNORE."""
        learned = self.corpus.learned
        text = ids >= learned.special
        if learned.unknown is not None:
            text &= ids != learned.unknown
        # The positions of text in a random order; the first of each row are chosen.
        shuffled = torch.rand(ids.shape, generator=generator).masked_fill(~text, 2.0).argsort(1)
        order = torch.empty_like(shuffled).scatter_(1, shuffled, torch.arange(ids.shape[1]).expand_as(shuffled))
        count = (self.rate * text.sum(1, keepdim=True)).round().clamp(min=1)
        chosen = text & (order < count)
        fate = torch.rand(ids.shape, generator=generator)
        seen = torch.where(chosen & (fate < self.masked), self.tokeniser.ids[MASK], ids)
        replaced = chosen & (fate >= self.masked) & (fate < self.masked + self.random)
        return torch.where(replaced, self._random_text(ids, generator), seen), ids.masked_fill(~chosen, IGNORE)

    def _random_text(self, ids: Tensor, generator: torch.Generator) -> Tensor:
        """Random tokens of text, each equally often, as many as `ids`."""
        first, unknown = self.corpus.learned.special, self.corpus.learned.unknown
        count = self.vocab_size - first - (unknown is not None)
        drawn = torch.randint(count, ids.shape, generator=generator) + first
        return drawn if unknown is None else drawn + (drawn >= unknown)


class Masked(MaskedTask, PackedTask):
    """Predict the hidden tokens of `[CLS] text [SEP]`. A sequence has `block` tokens, these two included.

    `packing`, `reset_positions`: as in Text; [CLS] and [SEP] belong to the documents beside them. `segments`: whether
    the text is the first of two segments, which an encoder embeds, as models have that were trained on pairs.
    """

    shortest, own_tokens = 3, 2

    def __init__(self, *, segments: bool = False, **settings: Any) -> None:
        self.segments = 2 if segments else 0
        self.tags = ("segment",) if self.segments else ()
        super().__init__(**settings)

    @property
    def interface(self) -> Interface:
        return Interface(self.vocab_size, segments=self.segments)

    def batch(self, split: Split, starts: Tensor, length: int, generator: torch.Generator) -> Batch:
        special = self.tokeniser.ids
        text = self.windows(split, starts, length)
        ids = pad(pad(text, (1, 0), value=special[CLASSIFY]), (0, 1), value=special[SEPARATE])
        inputs, targets = self.hide(ids, generator)
        tags = {name: torch.zeros_like(inputs) for name in self.tags}
        if self.packing == "blocks":
            return Batch(inputs=inputs, targets=targets, tags=tags)
        document = self.documents(split, starts, length)
        document = torch.cat([document[:, :1], document, document[:, -1:]], dim=1)
        return Batch(inputs=inputs, targets=targets, document=document, position=self.positions(document), tags=tags)
