"""Tasks on nested brackets: the determined tokens of a Dyck language, and closing what is open (Hewitt et al. 2020)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from swapformer.ranges import Count, OpenShare
from swapformer.task.layout import ItemLayout, append_filler
from swapformer.task.questions import QuestionTask
from swapformer.task.synthetic import Synthetic


def bracket_names(kinds: int) -> list[str]:
    """Symbols of the opening brackets of all kinds, and then of the closing ones."""
    more = range(4, kinds)
    opening, closing = [*"([{<", *(f"({kind}" for kind in more)], [*")]}>", *(f"){kind}" for kind in more)]
    return opening[:kinds] + closing[:kinds]


def draw_brackets(generator: torch.Generator, rows: int, width: int, kinds: int, depth: int, opening: float) -> Tensor:
    """Random beginnings [rows,width] of nested brackets: token `kind` opens one, `kinds + kind` closes one.

    One is opened with probability `opening` wherever one can be opened and closed.
    """
    wish = torch.rand(rows, width, generator=generator) < opening
    kind = torch.randint(kinds, (rows, width), generator=generator)
    stack = torch.zeros(rows, depth, dtype=torch.long)
    level = torch.zeros(rows, dtype=torch.long)
    tokens = []
    for position in range(width):
        opens = (level == 0) | (wish[:, position] & (level < depth))
        level = torch.where(opens, level, level - 1)
        top = level.unsqueeze(1)
        inner = torch.where(opens, kind[:, position], stack.gather(1, top).squeeze(1))
        stack.scatter_(1, top, inner.unsqueeze(1))
        tokens.append(torch.where(opens, inner, inner + kinds))
        level = level + opens.long()
    return torch.stack(tokens, dim=1)


def open_brackets(tokens: Tensor, kinds: int) -> Tensor:
    """The number of brackets that are open after each token [N,L]; filler (2 · kinds) changes nothing."""
    return ((tokens < kinds).long() - ((tokens >= kinds) & (tokens < 2 * kinds)).long()).cumsum(1)


class Dyck(Synthetic):
    """Predict the determined tokens of nested brackets: `( [ ] { } )`.

    `kinds`: k. `depth`: the most that are open at a time. `opening`: probability that one is opened where one may also
    be closed. `lengths`: [shortest, longest] tokens in training, the beginnings of longer sequences; `eval_lengths`:
    each adds a set "@n", 2x is twice the longest trained.
    Scored are the tokens that the language determines: the closing bracket where no more can be opened, and with one
    kind the opening bracket where none can be closed.
    UsageError: a number out of range, or a length with too few different sequences.
    """

    shortest = 2
    remedy = "raise task.kinds, or let task.lengths and task.eval_lengths begin later"

    def __init__(
        self,
        *,
        kinds: Count = 2,
        depth: Count = 3,
        opening: OpenShare = 0.6,
        lengths: Sequence[int] = (12, 32),
        **settings: Any,
    ) -> None:
        self.kinds, self.depth = kinds, depth
        self.opening = opening
        self.tokens = (*bracket_names(self.kinds), "<pad>")
        super().__init__(lengths=lengths, **settings)

    def tokens_at(self, length: int) -> int:
        return length

    def draw(self, generator: torch.Generator, lengths: Tensor, longest: int) -> Tensor:
        tokens = draw_brackets(generator, len(lengths), longest, self.kinds, self.depth, self.opening)
        return tokens.masked_fill(torch.arange(longest) >= lengths.unsqueeze(1), 2 * self.kinds).unsqueeze(1)

    def write(self, content: Tensor, lengths: Tensor, longest: int) -> ItemLayout:
        last = content.squeeze(1).gather(1, (lengths - 1).unsqueeze(1))
        tokens = append_filler(content.squeeze(1), 2 * self.kinds)
        before = open_brackets(tokens, self.kinds).roll(1, 1).index_fill(1, torch.tensor([0]), 0)
        # What the whole item determines is asked for as well: nothing is deeper than the bracket that came last.
        end = lengths.unsqueeze(1)
        scored = before == self.depth
        after = torch.where(scored.gather(1, end), last + self.kinds, 2 * self.kinds)
        if self.kinds == 1:
            scored |= before == 0
            after = torch.where(before.gather(1, end) == 0, 0, after)
        return ItemLayout(tokens.scatter(1, end, after), scored, inputs=lengths)


class Brackets(QuestionTask):
    """Close the brackets that are still open: `( [ ] { | } ) <end>`.

    `kinds`, `depth` and `opening`: as in a Dyck language. `lengths`: [shortest, longest] tokens to be closed in
    training; `eval_lengths`: each adds a set "@n", 2x is twice the longest trained. `as_source`: the brackets are the
    source of an encoder-decoder.
    UsageError: a number out of range, or a length with too few different sequences.
    """

    remedy = Dyck.remedy

    def __init__(
        self,
        *,
        kinds: Count = 3,
        depth: Count = 8,
        opening: OpenShare = 0.6,
        lengths: Sequence[int] = (6, 16),
        **settings: Any,
    ) -> None:
        self.kinds, self.depth = kinds, depth
        self.opening = opening
        self.tokens = (*bracket_names(self.kinds), "<pad>", "|", "<end>")
        self.separator_token, self.end_token = 2 * self.kinds + 1, 2 * self.kinds + 2
        super().__init__(lengths=lengths, **settings)

    def answer_at(self, length: int) -> int:
        return min(length, self.depth)

    def draw(self, generator: torch.Generator, lengths: Tensor, longest: int) -> Tensor:
        tokens = draw_brackets(generator, len(lengths), longest, self.kinds, self.depth, self.opening)
        return tokens.masked_fill(torch.arange(longest) >= lengths.unsqueeze(1), 2 * self.kinds).unsqueeze(1)

    def answer(self, content: Tensor, lengths: Tensor) -> Tensor:
        tokens = content.squeeze(1)
        level, position = open_brackets(tokens, self.kinds), torch.arange(tokens.shape[1])
        answers = []
        for height in range(self.answer_at(tokens.shape[1]), 0, -1):
            # What is open at a height was opened there last.
            opened = torch.where((tokens < self.kinds) & (level == height), position, -1).amax(1, keepdim=True)
            closing = tokens.gather(1, opened.clamp(min=0)) + self.kinds
            answers.append(torch.where(level[:, -1:] >= height, closing, 2 * self.kinds))
        return torch.cat(answers, dim=1)
