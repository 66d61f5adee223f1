"""What a Dyck language determines."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from swapformer.task.base import share, whole_number
from swapformer.task.brackets.language import levels, names, walk
from swapformer.task.layout import Written, with_room
from swapformer.task.lengths import evaluation_lengths, span
from swapformer.task.synthetic import Synthetic


class Dyck(Synthetic):
    """Brackets of several kinds, opened and closed as they may be: `( [ ] { } )`.

    `kinds`: k. `depth`: the most that are open at a time. `opening`: probability that one is opened where one may also
    be closed. `lengths`: [shortest, longest] tokens in training, the beginnings of longer sequences; `eval_lengths`:
    each adds a set "@n", 2x is twice the longest trained.
    Scored are the tokens that the language determines: the closing bracket where no more can be opened, and with one
    kind the opening bracket where none can be closed.
    UsageError: a number out of range, or a length with too few different sequences.
    """

    remedy = "raise task.kinds, or let task.lengths and task.eval_lengths begin later"

    def __init__(
        self,
        *,
        kinds: int = 2,
        depth: int = 3,
        opening: float = 0.6,
        lengths: Sequence[int] = (12, 32),
        eval_lengths: Sequence[int | str] = (),
        batch_size: int = 32,
    ) -> None:
        self.kinds, self.depth = whole_number("kinds", kinds, 1), whole_number("depth", depth, 1)
        self.opening, self.lengths = share("opening", opening), span("lengths", lengths, 2)
        self.tokens = (*names(self.kinds), "<pad>")
        self.vocab_size = len(self.tokens)
        super().__init__(
            lengths=self.lengths,
            eval_lengths=evaluation_lengths("eval_lengths", eval_lengths, self.lengths[1], 2),
            batch_size=batch_size,
            alphabet=2 * self.kinds,
        )

    def tokens_at(self, length: int) -> int:
        return length

    def draw(self, generator: torch.Generator, lengths: Tensor, longest: int) -> Tensor:
        tokens = walk(generator, len(lengths), longest, self.kinds, self.depth, self.opening)
        return tokens.masked_fill(torch.arange(longest) >= lengths.unsqueeze(1), 2 * self.kinds).unsqueeze(1)

    def write(self, content: Tensor, lengths: Tensor, longest: int) -> Written:
        last = content.squeeze(1).gather(1, (lengths - 1).unsqueeze(1))
        tokens = with_room(content.squeeze(1), 2 * self.kinds)
        before = levels(tokens, self.kinds).roll(1, 1).index_fill(1, torch.tensor([0]), 0)
        # What the whole item determines is asked for as well: nothing is deeper than the bracket that came last.
        end = lengths.unsqueeze(1)
        scored = before == self.depth
        after = torch.where(scored.gather(1, end), last + self.kinds, 2 * self.kinds)
        if self.kinds == 1:
            scored |= before == 0
            after = torch.where(before.gather(1, end) == 0, 0, after)
        return Written(tokens.scatter(1, end, after), scored, inputs=lengths)
