"""Blocks: how a layer's branches are wired."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import partial, reduce
from operator import add

from torch import Tensor, nn

from swapformer.model.dims import Dims
from swapformer.model.residual.base import State, Update
from swapformer.model.sublayer import Branch, Sublayer

MakeSublayer = Callable[[int, int], Sublayer]
"""(index of a residual branch, how many there are) → its sublayer."""


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
    def steps(self, branches: Sequence[Branch]) -> Sequence[tuple[Sublayer, Branch]]:
        """The residual branches in order: each sublayer with what it computes."""

    def forward(self, state: State, branches: Sequence[Branch], padding: Tensor | None = None) -> State:
        """The stream after all branches; `padding` [B|1, T] is handed to the norms."""
        for sublayer, branch in self.steps(branches):
            state = sublayer(state, branch, padding)
        return state

    def updates(self, branches: Sequence[Branch], padding: Tensor | None = None) -> list[Update]:
        """For each residual branch, what it computes from what it reads."""
        return [partial(sublayer.update, branch=branch, padding=padding) for sublayer, branch in self.steps(branches)]


class Sequential(Block):
    """Each branch reads what the one before it wrote (Vaswani et al. 2017, arXiv:1706.03762)."""

    def __init__(self, dims: Dims, *, branches: int, sublayer: MakeSublayer) -> None:
        super().__init__(dims, [sublayer(index, branches) for index in range(branches)])

    def steps(self, branches: Sequence[Branch]) -> Sequence[tuple[Sublayer, Branch]]:
        return [(self.sublayer(index), branch) for index, branch in enumerate(branches)]


class Parallel(Block):
    """All branches read the same normed input and their updates are summed: x + f(n(x)) + g(n(x)).

    One norm for all branches, as in GPT-J (Wang & Komatsuzaki 2021).
    """

    def __init__(self, dims: Dims, *, branches: int, sublayer: MakeSublayer) -> None:
        super().__init__(dims, [sublayer(0, 1)])

    def steps(self, branches: Sequence[Branch]) -> Sequence[tuple[Sublayer, Branch]]:
        return [(self.sublayer(0), lambda x: reduce(add, (branch(x) for branch in branches)))]
