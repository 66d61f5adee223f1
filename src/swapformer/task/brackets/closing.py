"""Closing what is still open."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from swapformer.task.answering import Answering
from swapformer.task.base import share, whole_number
from swapformer.task.brackets.dyck import Dyck
from swapformer.task.brackets.language import levels, names, walk
from swapformer.task.lengths import evaluation_lengths, span


class Brackets(Answering):
    """Brackets of which some are still open, then what closes them: `( [ ] { | } ) <end>`.

    `kinds`, `depth` and `opening`: as in a Dyck language. `lengths`: [shortest, longest] tokens to be closed in
    training; `eval_lengths`: each adds a set "@n", 2x is twice the longest trained. `as_source`: the brackets are the
    source of an encoder-decoder.
    UsageError: a number out of range, or a length with too few different sequences.
    """

    remedy = Dyck.remedy

    def __init__(
        self,
        *,
        kinds: int = 3,
        depth: int = 8,
        opening: float = 0.6,
        lengths: Sequence[int] = (6, 16),
        eval_lengths: Sequence[int | str] = (),
        batch_size: int = 32,
        as_source: bool = False,
    ) -> None:
        self.kinds, self.depth = whole_number("kinds", kinds, 1), whole_number("depth", depth, 1)
        self.opening, self.lengths = share("opening", opening), span("lengths", lengths)
        self.tokens = (*names(self.kinds), "<pad>", "|", "<end>")
        self.vocab_size = len(self.tokens)
        self.separator_token, self.end_token = 2 * self.kinds + 1, 2 * self.kinds + 2
        super().__init__(
            lengths=self.lengths,
            eval_lengths=evaluation_lengths("eval_lengths", eval_lengths, self.lengths[1]),
            batch_size=batch_size,
            alphabet=2 * self.kinds,
            as_source=as_source,
        )

    def question_at(self, length: int) -> int:
        return length

    def answer_at(self, length: int) -> int:
        return min(length, self.depth)

    def draw(self, generator: torch.Generator, lengths: Tensor, longest: int) -> Tensor:
        tokens = walk(generator, len(lengths), longest, self.kinds, self.depth, self.opening)
        return tokens.masked_fill(torch.arange(longest) >= lengths.unsqueeze(1), 2 * self.kinds).unsqueeze(1)

    def question(self, content: Tensor, lengths: Tensor) -> Tensor:
        return content.squeeze(1)

    def answer(self, content: Tensor, lengths: Tensor) -> Tensor:
        tokens = content.squeeze(1)
        level, place = levels(tokens, self.kinds), torch.arange(tokens.shape[1])
        answers = []
        for height in range(self.answer_at(tokens.shape[1]), 0, -1):
            # What is open at a height was opened there last.
            opened = torch.where((tokens < self.kinds) & (level == height), place, -1).amax(1, keepdim=True)
            closing = tokens.gather(1, opened.clamp(min=0)) + self.kinds
            answers.append(torch.where(level[:, -1:] >= height, closing, 2 * self.kinds))
        return torch.cat(answers, dim=1)
