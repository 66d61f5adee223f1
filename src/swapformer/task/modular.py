"""Addition modulo a number, of which a part of the table is shown (Power et al. 2022, arXiv:2201.02177: grokking)."""

from __future__ import annotations

import torch
from torch import Tensor

from swapformer.task.answering import Answering
from swapformer.task.base import share, whole_number
from swapformer.task.layout import column


class ModularAddition(Answering):
    """`a + b = c` with c = (a + b) mod p, every number one token.

    `modulus`: p. `fraction`: of the table's p² sums are for training; validation and test have half of the rest each.
    Unlike in the paper, a + b and b + a are always in the same split. `as_source`: a + b is the source of an
    encoder-decoder.
    UsageError: a number out of range, or a split with too few sums.
    """

    remedy = "raise task.modulus, or take another task.fraction"
    end_token = None

    def __init__(
        self, *, modulus: int = 97, fraction: float = 0.5, batch_size: int = 128, as_source: bool = False
    ) -> None:
        self.modulus, self.fraction = whole_number("modulus", modulus, 2), share("fraction", fraction)
        self.tokens = (*map(str, range(self.modulus)), "<pad>", "+", "=")
        self.vocab_size = len(self.tokens)
        self._plus, self.separator_token = modulus + 1, modulus + 2
        held = (1 - self.fraction) / 2
        super().__init__(
            lengths=(1, 1),
            eval_lengths=(),
            batch_size=batch_size,
            alphabet=self.modulus,
            as_source=as_source,
            shares={"train": self.fraction, "val": held, "test": held},
        )

    def question_at(self, length: int) -> int:
        return 3

    def answer_at(self, length: int) -> int:
        return 1

    def list_items(self, length: int) -> Tensor:
        return torch.cartesian_prod(*[torch.arange(self.modulus)] * 2).unsqueeze(2)

    def draw(self, generator: torch.Generator, lengths: Tensor, longest: int) -> Tensor:
        return torch.randint(self.modulus, (len(lengths), 2, 1), generator=generator)

    def question(self, content: Tensor, lengths: Tensor) -> Tensor:
        return torch.cat([content[:, 0], column(len(content), self._plus), content[:, 1]], dim=1)

    def answer(self, content: Tensor, lengths: Tensor) -> Tensor:
        return content.sum(1) % self.modulus
