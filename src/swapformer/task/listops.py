"""ListOps: nested operations on lists of digits (Nangia and Bowman 2018, arXiv:1804.06028)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import torch
from torch import Tensor

from swapformer.errors import UsageError
from swapformer.ranges import Several, Within
from swapformer.task.questions import QuestionTask

_MIN, _MAX, _MEDIAN, _SUM, _CLOSE, _PAD, _EQUALS = range(10, 17)
_FEWEST = 2
_CLOSING, _NESTING = 0.35, 0.4
"""How often an operation ends, or an argument is an operation, where the number of operations leaves it open."""


class ListOps(QuestionTask):
    """Nested minima, maxima, medians and sums modulo 10, then their value: `[MAX 2 9 [MIN 4 7 ] 0 ] = 9`.

    An operation has 2 … `arguments` arguments, digits or operations; at most `depth` are nested. The median of an even
    number is the mean of the middle two, rounded down, as by the authors. `lengths`: [fewest, most] operations in
    training, which measures a length here; `eval_lengths`: each adds a set "@n" of n operations, 2x is twice the most.
    `as_source`: the expression is the source of an encoder-decoder.
    UsageError: a number out of range, or more operations than the depth has room for.
    """

    remedy = "raise task.arguments or task.depth"
    tokens = (*"0123456789", "[MIN", "[MAX", "[MED", "[SM", "]", "<pad>", "=")
    separator_token, end_token = _EQUALS, None

    def __init__(
        self,
        *,
        arguments: Several = 4,
        depth: Annotated[int, Within("[1, 60]")] = 4,
        lengths: Sequence[int] = (1, 6),
        **settings: Any,
    ) -> None:
        self.arguments, self.depth = arguments, depth
        if self.arguments**self.depth >= 2**60:
            raise UsageError(
                f"task.arguments to the power of task.depth must be below 2^60, but {arguments}^{depth} is not"
            )
        # How many operations an argument has room for, by the number of operations around it.
        self._room = torch.tensor([sum(arguments**down for down in range(depth - level)) for level in range(depth + 1)])
        super().__init__(lengths=lengths, **settings)

    def require_room(self, longest: int) -> None:
        if longest > (most := int(self._room[0])):
            raise UsageError(
                f"task.lengths and task.eval_lengths must be at most {most} operations, as many as "
                f"task.depth={self.depth} and task.arguments={self.arguments} have room for, but one is {longest}; "
                f"{self.remedy}"
            )

    def width_at(self, length: int) -> int:
        # Each operation has its name, its bracket and its arguments, and all but one are an argument themselves.
        return (self.arguments + 1) * length + 1

    def draw(self, generator: torch.Generator, lengths: Tensor, longest: int) -> Tensor:
        rows, width, most = len(lengths), self.width_at(longest), self.arguments
        closing, nesting = torch.rand(2, width, rows, generator=generator)
        digits = torch.randint(10, (width, rows), generator=generator)
        operations = torch.randint(_MIN, _SUM + 1, (width, rows), generator=generator)
        # Around everything stands one more operation, all of whose arguments are there but one.
        used = torch.zeros(rows, self.depth + 1, dtype=torch.long)
        used[:, 0] = most - 1
        level, left, capacity = torch.zeros_like(lengths), lengths.clone(), self._room[:1].expand(rows)
        tokens = []
        for position in range(width):
            mine, room = used.gather(1, level.unsqueeze(1)).squeeze(1), self._room[level]
            done, full, spare = (level == 0) & (mine == most), mine == most, capacity - (most - mine) * room
            # What is still to come must find room in what is then still open.
            closes = (level > 0) & (mine >= _FEWEST) & (left <= spare) & (full | (closing[position] < _CLOSING))
            must = left > capacity - room
            opens = ~closes & ~full & (level < self.depth) & (left > 0) & (must | (nesting[position] < _NESTING))
            plain = ~(closes | opens | done)
            token = torch.where(opens, operations[position], digits[position])
            tokens.append(token.masked_fill(closes, _CLOSE).masked_fill(done, _PAD))
            used.scatter_(1, level.unsqueeze(1), ((mine + opens + plain) * ~closes).unsqueeze(1))
            capacity = torch.where(closes, spare, capacity - room * plain - opens.long())
            left, level = left - opens.long(), level + opens.long() - closes.long()
        return torch.stack(tokens, dim=1).unsqueeze(1)

    def answer(self, content: Tensor, lengths: Tensor) -> Tensor:
        tokens = content.squeeze(1)
        opens, closes = (tokens >= _MIN) & (tokens <= _SUM), tokens == _CLOSE
        level = (opens.long() - closes.long()).cumsum(1)
        values = tokens.masked_fill(tokens >= _MIN, -1)
        for height in range(self.depth, 0, -1):
            # The operations of a height never overlap: each is known by how many began before.
            number = ((opens & (level == height)).cumsum(1) - 1).clamp(min=0)
            results = self._evaluate(
                tokens, values, number, opens & (level == height), (values >= 0) & (level == height)
            )
            ended = closes & (level == height - 1)
            values = torch.where(ended, results.gather(1, number), values)
        return results[:, :1]

    def _evaluate(self, tokens: Tensor, values: Tensor, number: Tensor, begins: Tensor, counts: Tensor) -> Tensor:
        """The values [N,S] of the S operations of a height."""
        rows, most = len(tokens), int(number.max()) + 1
        kind = torch.zeros(rows, most, dtype=torch.long).scatter_add(1, number, tokens * begins)
        slots = number * 10 + values.clamp(min=0)
        counted = torch.zeros(rows, most * 10, dtype=torch.long).scatter_add(1, slots, counts.long())
        histogram = counted.view(rows, most, 10)
        below = histogram.cumsum(2)
        size = below[..., -1]

        def ordered(rank: Tensor) -> Tensor:
            """The argument of a rank in ascending order, from 0."""
            return (below > rank.unsqueeze(2)).byte().argmax(2)

        median = (ordered((size - 1).clamp(min=0) // 2) + ordered(size // 2)) // 2
        total = (histogram * torch.arange(10)).sum(2) % 10
        largest = ordered((size - 1).clamp(min=0))
        found = torch.where(kind == _MIN, ordered(torch.zeros_like(size)), largest)
        return torch.where(kind == _MEDIAN, median, torch.where(kind == _SUM, total, found))
