"""The base of synthetic tasks that ask a question with one right answer."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from swapformer.interface import Interface
from swapformer.task.base import Batch, Sequences
from swapformer.task.layout import ItemLayout, close_gaps, column, padding_or_none
from swapformer.task.synthetic import Synthetic


class QuestionTask(Synthetic):
    """Base of tasks `question separator answer <end>`: the answer and its end are predicted.

    `separator_token`: the id of the token between them; `end_token`: of the end, None where answers have one token and
    need none. `as_source`: the question is a sequence of its own for an encoder, and the decoder predicts the answer
    alone, from the separator as its start token.
    """

    separator_token: int
    as_source: bool

    def __init__(self, *, as_source: bool = False, **settings: Any) -> None:
        self.as_source = as_source
        self.start_token = self.separator_token if as_source else None
        super().__init__(**settings)
        if self.as_source:
            self.max_length = max(self.max_length, self.question_at(max(*self.lengths, *self.eval_lengths)))

    @property
    def interface(self) -> Interface:
        return Interface(self.vocab_size, source=self.as_source)

    def question_at(self, length: int) -> int:
        """Tokens of the longest question of a length: those of its content, unless a task says otherwise."""
        return self.width_at(length)

    def answer_at(self, length: int) -> int:
        """Tokens of the longest answer to a question of a length, its end aside: one, unless a task says otherwise."""
        return 1

    def question(self, content: Tensor, lengths: Tensor) -> Tensor:
        """The questions [N,question_at] of items [N,P,W], gaps where there is filler: the one part of their content."""
        return content.squeeze(1)

    @abstractmethod
    def answer(self, content: Tensor, lengths: Tensor) -> Tensor:
        """The answers [N,answer_at] to items [N,P,W], gaps where there is filler."""

    def tokens_at(self, length: int) -> int:
        asked = 0 if self.as_source else self.question_at(length)
        return asked + self.answer_at(length) + (self.end_token is not None)

    def write(self, content: Tensor, lengths: Tensor, longest: int) -> ItemLayout:
        rows = len(content)
        before = [column(rows, self.separator_token)]
        if not self.as_source:
            before.insert(0, self.question(content, lengths))
        after = [self.answer(content, lengths)]
        if self.end_token is not None:
            after.append(column(rows, self.end_token))
        tokens = torch.cat([*before, *after], dim=1)
        asked = sum(piece.shape[1] for piece in before)
        return ItemLayout(tokens, (torch.arange(tokens.shape[1]) >= asked).expand_as(tokens))

    def collate(self, content: Tensor, lengths: Tensor, longest: int) -> Batch:
        batch = super().collate(content, lengths, longest)
        if not self.as_source:
            return batch
        question, filler = self.question(content, lengths), self.splits.alphabet
        inputs = close_gaps(question != filler, question, filler).contiguous()
        return replace(batch, source=Sequences(inputs=inputs, padding=padding_or_none(inputs == filler)))
