"""Blocks: how the residual branches of a layer are wired, one after the other or in parallel."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial, reduce
from operator import add
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from swapformer.model.dims import Dims
from swapformer.model.norm import Norm
from swapformer.model.placement import Placement
from swapformer.model.residual import Residual
from swapformer.model.residual.base import State, Update
from swapformer.model.taps import Site, Tapped

Branch = Callable[[Tensor], Tensor]
"""The function of a branch, x [B, T, D] → update [B, T, D]: an attention or a feed-forward layer."""


READ = ("hook_resid_pre", "hook_resid_mid", "hook_resid_mid_cross")
"""What the first, second and third sublayer of a layer read, as TransformerLens calls it."""


class Sublayer(Tapped):
    """One residual branch with its norms: x ← after(write(x, inside(f(before(read(x)))))).

    A norm that the placement leaves out is skipped.
    """

    places: ClassVar[Mapping[str, str]] = {"hook_read": "B T D", "hook_update": "B T D", "hook_stream": "B T n D"}

    def __init__(self, norm: Callable[[], Norm], residual: Residual, placement: Placement) -> None:
        super().__init__()
        self.before = norm() if placement.before else None
        self.inside = norm() if placement.inside else None
        self.after = norm() if placement.after else None
        self.residual = residual

    def forward(self, state: State, branch: Branch, padding: Tensor | None = None) -> State:
        state, x = self._watched_read(state) if self.observed else (state, self.residual.read(state))
        state = self.residual.write(state, self.update(x, branch, padding))
        if self.after is None:
            return state
        return self.residual.normalise(state, partial(self.after, padding=padding))

    def update(self, x: Tensor, branch: Branch, padding: Tensor | None = None) -> Tensor:
        """The branch's update from its input x: inside(f(before(x)))."""
        update = branch(x if self.before is None else self.before(x, padding))
        return self.tap("hook_update", update if self.inside is None else self.inside(update, padding))

    def _watched_read(self, state: State) -> tuple[State, Tensor]:
        """The state and what the branch reads of it, as those who watch them leave them."""
        state = self.tap_as("hook_stream", state, _stacked, partial(_unstacked, like=state))
        x = self.tap("hook_read", self.residual.read(state))
        return (x, x) if self.residual.reads_stream else (state, x)

    def site(self, place: str, name: str) -> Site:
        """A place of the sublayer by the name that its layer gives it."""
        fixed = place == "hook_read" and not self.residual.reads_stream
        return Site(name, self, place, self.places[place], "hook_stream" if fixed else None)


def _stacked(state: State) -> Tensor:
    """The streams of a state side by side, [B, T, n, D]."""
    return torch.stack(state, dim=2) if isinstance(state, tuple) else state


def _unstacked(streams: Tensor, like: State) -> Any:
    return streams.unbind(2) if isinstance(like, tuple) else streams


MakeSublayer = Callable[[int, int], Sublayer]
"""(index of a residual branch, how many there are) → its sublayer."""


class Block(Tapped, ABC):
    """Base of the slot: the sublayers of a layer. The layer owns the branches and passes them at every call."""

    def __init__(self, dims: Dims, sublayers: Sequence[Sublayer]) -> None:
        super().__init__()
        self.sublayers = nn.ModuleList(sublayers)

    def sublayer(self, index: int) -> Sublayer:
        """The sublayer at an index; negative ones count from the end."""
        sublayer = self.sublayers[index]
        assert isinstance(sublayer, Sublayer)
        return sublayer

    def named_sites(self, branches: Sequence[str]) -> Iterator[Site]:
        """The places of the residual branches; these have names such as attn and mlp, in order.

        Those of what the branches read, and of their updates where each has a sublayer of its own.
        """
        first = self.sublayer(0)
        if not first.residual.reads_stream:
            yield first.site("hook_stream", "hook_stream")
        yield first.site("hook_read", READ[0])
        if len(self.sublayers) == len(branches):
            yield from (self.sublayer(index).site("hook_read", READ[index]) for index in range(1, len(branches)))
            for index, name in enumerate(branches):
                yield self.sublayer(index).site("hook_update", f"hook_{name}_out")

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

    One norm for all branches, as in GPT-J (Wang & Komatsuzaki 2021); a norm inside falls on the sum, and taps show what
    goes into it.
    """

    def __init__(self, dims: Dims, *, branches: int, sublayer: MakeSublayer) -> None:
        super().__init__(dims, [sublayer(0, 1)])

    def steps(self, branches: Sequence[Branch]) -> Sequence[tuple[Sublayer, Branch]]:
        def together(x: Tensor) -> Tensor:
            return reduce(add, (self.tap(place, branch(x)) for place, branch in zip(_OUT, branches, strict=False)))

        return [(self.sublayer(0), together)]

    def named_sites(self, branches: Sequence[str]) -> Iterator[Site]:
        yield from super().named_sites(branches if len(branches) > 1 else ())
        for place, name in zip(_OUT, branches, strict=False):
            yield Site(f"hook_{name}_out", self, place, "B T D")


_OUT = ("hook_first", "hook_second", "hook_third")
"""The updates of branches side by side."""
