"""Blocks: how the residual branches of a layer are wired, one after the other or in parallel."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import partial, reduce
from operator import add

from torch import Tensor, nn

from swapformer.model.dims import Dims
from swapformer.model.norm import Norm
from swapformer.model.placement import Placement
from swapformer.model.residual import Residual
from swapformer.model.residual.base import State, Update

Branch = Callable[[Tensor], Tensor]
"""The function of a branch, x [B, T, D] → update [B, T, D]: an attention or a feed-forward layer."""


class Sublayer(nn.Module):
    """One residual branch with its norms: x ← after(write(x, inside(f(before(read(x)))))).

    A norm that the placement leaves out is skipped.
    """

    def __init__(self, norm: Callable[[], Norm], residual: Residual, placement: Placement) -> None:
        super().__init__()
        self.before = norm() if placement.before else None
        self.inside = norm() if placement.inside else None
        self.after = norm() if placement.after else None
        self.residual = residual

    def forward(self, state: State, branch: Branch, padding: Tensor | None = None) -> State:
        state = self.residual.write(state, self.update(self.residual.read(state), branch, padding))
        if self.after is None:
            return state
        return self.residual.normalise(state, partial(self.after, padding=padding))

    def update(self, x: Tensor, branch: Branch, padding: Tensor | None = None) -> Tensor:
        """The branch's update from its input x: inside(f(before(x)))."""
        update = branch(x if self.before is None else self.before(x, padding))
        return update if self.inside is None else self.inside(update, padding)


MakeSublayer = Callable[[int, int], Sublayer]
"""(index of a residual branch, how many there are) → its sublayer."""


class Block(nn.Module, ABC):
    """Base of the slot: the sublayers of a layer. The layer owns the branches and passes them at every call."""

    def __init__(self, dims: Dims, sublayers: Sequence[Sublayer]) -> None:
        super().__init__()
        self.sublayers = nn.ModuleList(sublayers)

    def sublayer(self, index: int) -> Sublayer:
        """The sublayer at an index; negative ones count from the end."""
        sublayer = self.sublayers[index]
        assert isinstance(sublayer, Sublayer)
        return sublayer

    @abstractmethod
    def steps(self, branches: Sequence[Branch]) -> Sequence[tuple[Sublayer, Branch]]:
        """The sublayers in order, each with the branch that it runs."""

    def forward(self, state: State, branches: Sequence[Branch], padding: Tensor | None = None) -> State:
        """The stream after all branches; `padding` [B|1, T] is passed to the norms."""
        for sublayer, branch in self.steps(branches):
            state = sublayer(state, branch, padding)
        return state

    def updates(self, branches: Sequence[Branch], padding: Tensor | None = None) -> list[Update]:
        """For each sublayer the function from its input to its update."""
        return [partial(sublayer.update, branch=branch, padding=padding) for sublayer, branch in self.steps(branches)]


class Sequential(Block):
    """Each branch reads the stream after the one before it (Vaswani et al. 2017, arXiv:1706.03762)."""

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
