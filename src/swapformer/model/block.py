"""Blocks: how a layer's branches are wired."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import reduce
from operator import add

from torch import Tensor, nn

from swapformer.model.dims import Dims
from swapformer.model.sublayer import Branch, Sublayer


class Block(nn.Module, ABC):
    """Base of the slot. Owns the sublayers; the layer owns the branches and hands them over at every call."""

    def __init__(self, dims: Dims, sublayers: Sequence[Sublayer]) -> None:
        super().__init__()
        self.sublayers = nn.ModuleList(sublayers)

    def sublayer(self, index: int) -> Sublayer:
        """The sublayer at an index, counted as Python counts."""
        sublayer = self.sublayers[index]
        assert isinstance(sublayer, Sublayer)
        return sublayer

    @abstractmethod
    def forward(self, state: Tensor, branches: Sequence[Branch]) -> Tensor:
        """The stream after all branches."""


class Sequential(Block):
    """Each branch reads what the one before it wrote (Vaswani et al. 2017, arXiv:1706.03762)."""

    def __init__(self, dims: Dims, *, branches: int, sublayer: Callable[[], Sublayer]) -> None:
        super().__init__(dims, [sublayer() for _ in range(branches)])

    def forward(self, state: Tensor, branches: Sequence[Branch]) -> Tensor:
        for sublayer, branch in zip(self.sublayers, branches, strict=True):
            state = sublayer(state, branch)
        return state


class Parallel(Block):
    """All branches read the same normed input and their updates are summed: x + f(n(x)) + g(n(x)).

    One norm for all branches, as in GPT-J (Wang & Komatsuzaki 2021).
    """

    def __init__(self, dims: Dims, *, branches: int, sublayer: Callable[[], Sublayer]) -> None:
        super().__init__(dims, [sublayer()])

    def forward(self, state: Tensor, branches: Sequence[Branch]) -> Tensor:
        return self.sublayers[0](state, lambda x: reduce(add, (branch(x) for branch in branches)))
