"""Tasks of recall: values of keys (Ba et al. 2016; Arora et al. 2023, arXiv:2312.04927), a needle, a table of facts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import torch
from torch import Tensor

from swapformer.errors import UsageError
from swapformer.random import stream
from swapformer.ranges import Count, Natural, Positive, Several, Within
from swapformer.task.base import Split
from swapformer.task.layout import ItemLayout, append_filler, close_gaps, permutations
from swapformer.task.questions import QuestionTask
from swapformer.task.settings import at_least
from swapformer.task.synthetic import Synthetic


class AssociativeRecall(Synthetic):
    """Recall the values of keys after n pairs of both: `k3 v7 k1 v2 .0 .4 k3 v7`.

    `keys`, `values`: sizes of their alphabets; the keys of an item differ. `queries`: keys that are asked for, each
    once (null: all n; at most n). `spread`: s · queries slots of two tokens follow the pairs, of which as many hold a
    query; the others hold two of `distractors` meaningless symbols. `power`: slot g = 1, 2 … is taken with a chance
    proportional to g^(power − 1), so that gaps follow a power law, as by Arora; 1: all alike.
    `lengths`: [fewest, most] pairs in training; `eval_lengths`: each adds a set "@n" of n pairs, 2x is twice the most.
    Scored is what follows a query. (Where all keys are asked for, the last one could be told too; that is not asked.)
    UsageError: a number out of range, or too few keys.
    """

    remedy = "raise task.keys or task.values"
    shortest = 2

    def __init__(
        self,
        *,
        keys: Annotated[int, Within("[3, inf)")] = 64,
        values: Several = 64,
        queries: Count | None = None,
        spread: Count = 4,
        power: Positive = 0.01,
        distractors: Several = 32,
        lengths: Sequence[int] = (2, 8),
        **settings: Any,
    ) -> None:
        self.keys, self.values = keys, values
        self.queries = queries
        self.spread, self.distractors = spread, distractors
        self.power = power
        names = [f"{kind}{i}" for kind, size in (("k", keys), ("v", values), (".", distractors)) for i in range(size)]
        self.tokens = (*names, "<pad>")
        super().__init__(lengths=lengths, **settings)

    def require_room(self, longest: int) -> None:
        if self.keys < longest + 2:
            raise UsageError(
                f"task.keys must be at least {longest + 2}, since the keys of an item differ and leave two, but is "
                f"{self.keys}; raise it, or lower task.lengths and task.eval_lengths"
            )

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

    def write(self, content: Tensor, lengths: Tensor, longest: int) -> ItemLayout:
        tokens = append_filler(content.squeeze(1), self.vocab_size - 1)
        position = torch.arange(tokens.shape[1])
        query = (tokens < self.keys) & (position >= 2 * lengths.unsqueeze(1))
        count = (tokens != self.vocab_size - 1).sum(1)
        return ItemLayout(tokens, query.roll(1, 1) & (position > 0), inputs=count)


class Needle(Synthetic):
    """Find the value of a key among n meaningless symbols: `.3 .1 k2 v5 .0 … k2 v5`.

    `symbols`: size of the alphabet of the haystack. `keys`, `values`: of the needle's. `distractors`: other needles
    with other keys in the same haystack. `lengths`: [shortest, longest] haystack in training, needles included;
    `eval_lengths`: each adds a set "@n", 2x is twice the longest trained. Scored is the last value.
    UsageError: a number out of range, or a haystack too short for its needles.
    """

    remedy = "raise task.symbols, task.keys or task.values"

    def __init__(
        self,
        *,
        symbols: Several = 26,
        keys: int = 16,
        values: Several = 16,
        distractors: Natural = 2,
        lengths: Sequence[int] = (16, 64),
        **settings: Any,
    ) -> None:
        self.symbols = symbols
        self.distractors = distractors
        self.keys, self.values = at_least("keys", keys, distractors + 2), values
        self.shortest = 2 * distractors + 2
        names = [f"{kind}{i}" for kind, size in ((".", symbols), ("k", keys), ("v", values)) for i in range(size)]
        self.tokens = (*names, "<pad>")
        super().__init__(lengths=lengths, **settings)

    def width_at(self, length: int) -> int:
        return 1 + length  # the key that is asked for stands first

    def tokens_at(self, length: int) -> int:
        return length + 1

    def draw(self, generator: torch.Generator, lengths: Tensor, longest: int) -> Tensor:
        rows, needles, filler = len(lengths), self.distractors + 1, self.vocab_size - 1
        # A needle takes two tokens and a symbol one, so that there are n − needles of them in order.
        things = torch.arange(longest - needles)
        beyond = things >= (lengths - needles).unsqueeze(1)
        straw = torch.randint(self.symbols, (rows, len(things)), generator=generator).masked_fill(beyond, filler)
        where = torch.rand(rows, len(things), generator=generator).masked_fill(beyond, -1.0).topk(needles).indices
        key = self.symbols + permutations(generator, rows, self.keys, needles)
        value = self.symbols + self.keys + torch.randint(self.values, (rows, needles), generator=generator)
        first = straw.scatter(1, where, key)
        second = torch.full_like(straw, filler).scatter(1, where, value)
        tokens = torch.stack([first, second], dim=2).flatten(1)
        haystack = close_gaps(tokens != filler, tokens, filler)[:, :longest]
        return torch.cat([key[:, :1], haystack], dim=1).unsqueeze(1)

    def write(self, content: Tensor, lengths: Tensor, longest: int) -> ItemLayout:
        key, haystack = content[:, 0, :1], content[:, 0, 1:]
        value = haystack.gather(1, (haystack == key).byte().argmax(1, keepdim=True) + 1)
        tokens = torch.cat([haystack, key, value], dim=1)
        return ItemLayout(tokens, (torch.arange(tokens.shape[1]) == tokens.shape[1] - 1).expand_as(tokens))


class FactRecall(QuestionTask):
    """Memorise a fixed table of facts about entities: `f1 e3 r0 = v7`.

    The table gives each of `entities` a value of `values` for each of `relations`, drawn once from the stream `table`;
    `facts` [entities, relations] holds it. Every fact can be asked for in `forms` ways that differ in their first
    token. Training states every fact in form 0; each fact in another form belongs to one split, so what is evaluated is
    never the training's sentence, but always a fact of the training. With one form there is nothing to hold out: every
    split is the whole table. `as_source`: the question is the source of an encoder-decoder.
    UsageError: a number out of range, or too few facts to split.
    """

    remedy = "raise task.entities, task.relations or task.forms"
    end_token = None

    def __init__(
        self,
        *,
        entities: Several = 64,
        relations: Count = 4,
        values: Several = 32,
        forms: Count = 4,
        table: Natural = 0,
        batch_size: Count = 64,
        eval_batch_size: Count | None = None,
        as_source: bool = False,
    ) -> None:
        self.entities, self.relations = entities, relations
        self.values, self.forms = values, forms
        self.table = table
        self.facts = torch.randint(values, (entities, relations), generator=stream("facts", table))
        sizes = (("f", forms), ("e", entities), ("r", relations))
        asked = [f"{kind}{index}" for kind, size in sizes for index in range(size)]
        self.tokens = (*asked, "<pad>", "=", *(f"v{index}" for index in range(values)))
        self.separator_token = len(asked) + 1
        self.held_out = forms > 1
        super().__init__(lengths=(1, 1), batch_size=batch_size, eval_batch_size=eval_batch_size, as_source=as_source)

    def width_at(self, length: int) -> int:
        return 3

    def list_items(self, length: int) -> Tensor:
        sizes = (self.forms, self.entities, self.relations)
        return self._named(torch.cartesian_prod(*map(torch.arange, sizes))[self.entities * self.relations :])

    def draw(self, generator: torch.Generator, lengths: Tensor, longest: int) -> Tensor:
        sizes = (self.forms, self.entities, self.relations)
        return self._named(
            torch.stack([torch.randint(size, (len(lengths),), generator=generator) for size in sizes], 1)
        )

    def training_items(self, length: int) -> int | None:
        listed = super().training_items(length)
        return None if listed is None else listed + self.entities * self.relations

    def _named(self, items: Tensor) -> Tensor:
        """Numbers of form, entity and relation [N,3] as symbols of one alphabet [N,1,3]."""
        return (items + torch.tensor([0, self.forms, self.forms + self.entities])).unsqueeze(1)

    def belongs(self, split: Split, content: Tensor, lengths: Tensor) -> Tensor:
        base = content[:, 0, 0] == 0
        held = super().belongs(split, content, lengths)
        return held | base if split == "train" or not self.held_out else held & ~base

    def every_fact(self, form: int) -> tuple[Tensor, Tensor]:
        """All facts asked for in one form, entity by entity: the question with `=` behind it [N, 4], the answer [N]."""
        forms = torch.tensor([form])
        content = self._named(torch.cartesian_prod(forms, torch.arange(self.entities), torch.arange(self.relations)))
        equals = torch.full((len(content), 1), self.separator_token)
        lengths = torch.ones(len(content), dtype=torch.int64)
        return torch.cat([content.squeeze(1), equals], dim=1), self.answer(content, lengths).squeeze(1)

    def answer(self, content: Tensor, lengths: Tensor) -> Tensor:
        _, entity, relation = content.squeeze(1).unbind(1)
        value = self.facts[entity - self.forms, relation - self.forms - self.entities]
        return (self.separator_token + 1 + value).unsqueeze(1)
