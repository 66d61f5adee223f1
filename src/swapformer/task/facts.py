"""A fixed table of facts to be memorised."""

from __future__ import annotations

import torch
from torch import Tensor

from swapformer.random import stream
from swapformer.task.answering import Answering
from swapformer.task.base import Split, whole_number


class FactRecall(Answering):
    """What the table says of an entity: `f1 e3 r0 = v7`.

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
        entities: int = 64,
        relations: int = 4,
        values: int = 32,
        forms: int = 4,
        table: int = 0,
        batch_size: int = 64,
        as_source: bool = False,
    ) -> None:
        self.entities, self.relations = whole_number("entities", entities, 2), whole_number("relations", relations, 1)
        self.values, self.forms = whole_number("values", values, 2), whole_number("forms", forms, 1)
        self.table = whole_number("table", table, 0)
        self.facts = torch.randint(values, (entities, relations), generator=stream("facts", table))
        sizes = (("f", forms), ("e", entities), ("r", relations))
        asked = [f"{kind}{index}" for kind, size in sizes for index in range(size)]
        self.tokens = (*asked, "<pad>", "=", *(f"v{index}" for index in range(values)))
        self.vocab_size = len(self.tokens)
        self.separator_token = len(asked) + 1
        self.held_out = forms > 1
        super().__init__(
            lengths=(1, 1), eval_lengths=(), batch_size=batch_size, alphabet=len(asked), as_source=as_source
        )

    def width_at(self, length: int) -> int:
        return 3

    def question_at(self, length: int) -> int:
        return 3

    def answer_at(self, length: int) -> int:
        return 1

    def list_items(self, length: int) -> Tensor:
        sizes = (self.forms, self.entities, self.relations)
        return self._named(torch.cartesian_prod(*map(torch.arange, sizes))[self.entities * self.relations :])

    def draw(self, generator: torch.Generator, lengths: Tensor, longest: int) -> Tensor:
        sizes = (self.forms, self.entities, self.relations)
        return self._named(
            torch.stack([torch.randint(size, (len(lengths),), generator=generator) for size in sizes], 1)
        )

    def _named(self, items: Tensor) -> Tensor:
        """Numbers of form, entity and relation [N,3] as symbols of one alphabet [N,1,3]."""
        return (items + torch.tensor([0, self.forms, self.forms + self.entities])).unsqueeze(1)

    def belongs(self, split: Split, content: Tensor, lengths: Tensor) -> Tensor:
        base = content[:, 0, 0] == 0
        held = super().belongs(split, content, lengths)
        return held | base if split == "train" or not self.held_out else held & ~base

    def question(self, content: Tensor, lengths: Tensor) -> Tensor:
        return content.squeeze(1)

    def answer(self, content: Tensor, lengths: Tensor) -> Tensor:
        _, entity, relation = content.squeeze(1).unbind(1)
        value = self.facts[entity - self.forms, relation - self.forms - self.entities]
        return (self.separator_token + 1 + value).unsqueeze(1)
