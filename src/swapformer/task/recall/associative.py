"""Recalling what keys were paired with."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from swapformer.errors import UsageError
from swapformer.task.base import whole_number
from swapformer.task.draws import permutations
from swapformer.task.layout import Written, close_gaps, with_room
from swapformer.task.lengths import evaluation_lengths, span
from swapformer.task.synthetic import Synthetic


class AssociativeRecall(Synthetic):
    """n pairs of a key and a value, then keys again, each to be followed by its value: `k3 v7 k1 v2 .0 .4 k3 v7`.

    `keys`, `values`: sizes of their alphabets; the keys of an item differ. `queries`: keys that are asked for, each
    once (null: all n; at most n). `spread`: s · queries slots of two tokens follow the pairs, of which as many hold a
    query; the others hold two of `distractors` meaningless symbols. `power`: slot g = 1, 2 … is taken with a chance
    proportional to g^(power − 1), so that gaps follow a power law, as by Arora; 1: all alike.
    `lengths`: [fewest, most] pairs in training; `eval_lengths`: each adds a set "@n" of n pairs, 2x is twice the most.
    Scored is what follows a query. (Where all keys are asked for, the last one could be told too; that is not asked.)
    UsageError: a number out of range, or too few keys.
    """

    remedy = "raise task.keys or task.values"

    def __init__(
        self,
        *,
        keys: int = 64,
        values: int = 64,
        queries: int | None = None,
        spread: int = 4,
        power: float = 0.01,
        distractors: int = 32,
        lengths: Sequence[int] = (2, 8),
        eval_lengths: Sequence[int | str] = (),
        batch_size: int = 32,
    ) -> None:
        self.keys, self.values = whole_number("keys", keys, 3), whole_number("values", values, 2)
        self.queries = None if queries is None else whole_number("queries", queries, 1)
        self.spread, self.distractors = whole_number("spread", spread, 1), whole_number("distractors", distractors, 2)
        if isinstance(power, bool) or not isinstance(power, int | float) or power <= 0:
            raise UsageError(f"task.power must be a number above 0, but is {power!r}; 1 favours no gap")
        self.power, self.lengths = power, span("lengths", lengths, 2)
        tested = evaluation_lengths("eval_lengths", eval_lengths, self.lengths[1], 2)
        if self.keys < (needed := max(*self.lengths, *tested) + 2):
            raise UsageError(
                f"task.keys must be at least {needed}, since the keys of an item differ and leave two, but is {keys}; "
                "raise it, or lower task.lengths and task.eval_lengths"
            )
        names = [f"{kind}{i}" for kind, size in (("k", keys), ("v", values), (".", distractors)) for i in range(size)]
        self.tokens = (*names, "<pad>")
        self.vocab_size = len(self.tokens)
        super().__init__(lengths=self.lengths, eval_lengths=tested, batch_size=batch_size, alphabet=self.vocab_size - 1)

    def asked_at(self, length: int) -> int:
        """Queries of an item with `length` pairs."""
        return length if self.queries is None else min(length, self.queries)

    def width_at(self, length: int) -> int:
        return 2 * length + 2 * self.spread * self.asked_at(length)

    def tokens_at(self, length: int) -> int:
        return self.width_at(length)

    def draw(self, generator: torch.Generator, lengths: Tensor, longest: int) -> Tensor:
        rows, pairs, filler = len(lengths), longest, self.vocab_size - 1
        queries, n = self.asked_at(pairs), lengths.unsqueeze(1)
        asked = n if self.queries is None else n.clamp(max=self.queries)
        keys = permutations(generator, rows, self.keys, pairs)
        values = self.keys + torch.randint(self.values, (rows, pairs), generator=generator)
        facts = torch.stack([keys, values], dim=2).masked_fill((torch.arange(pairs) >= n).unsqueeze(2), filler)
        # Slots in the order of log-weight plus Gumbel noise are drawn one by one without replacement.
        slot = torch.arange(self.spread * queries)
        gumbel = -torch.rand(rows, len(slot), generator=generator).clamp(min=1e-12).log()
        score = (self.power - 1) * (slot + 1).log() - gumbel.log()
        beyond = slot >= self.spread * asked
        slots = score.masked_fill(beyond, -torch.inf).topk(queries, dim=1).indices
        which = torch.rand(rows, pairs, generator=generator).masked_fill(torch.arange(pairs) >= n, -1.0).topk(queries)
        asking = facts.gather(1, which.indices.unsqueeze(2).expand(-1, -1, 2))
        noise = torch.randint(self.distractors, (rows, len(slot), 2), generator=generator) + self.keys + self.values
        noise = noise.masked_fill(beyond.unsqueeze(2), filler)
        # Queries that an item has not go to a slot that is cut off.
        slots = slots.masked_fill(torch.arange(queries) >= asked, len(slot)).unsqueeze(2).expand(-1, -1, 2)
        tail = torch.cat([noise, noise[:, :1]], dim=1).scatter(1, slots, asking)[:, :-1]
        tokens = torch.cat([facts.flatten(1), tail.flatten(1)], dim=1)
        return close_gaps(tokens != filler, tokens, filler).unsqueeze(1)

    def write(self, content: Tensor, lengths: Tensor, longest: int) -> Written:
        tokens = with_room(content.squeeze(1), self.vocab_size - 1)
        place = torch.arange(tokens.shape[1])
        query = (tokens < self.keys) & (place >= 2 * lengths.unsqueeze(1))
        count = (tokens != self.vocab_size - 1).sum(1)
        return Written(tokens, query.roll(1, 1) & (place > 0), inputs=count)
