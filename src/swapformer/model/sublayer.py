"""One residual branch with its norms."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from torch import Tensor, nn

from swapformer.model.norm import Norm
from swapformer.model.placement import Placement
from swapformer.model.residual import Residual
from swapformer.model.residual.base import State

Branch = Callable[[Tensor], Tensor]


class Sublayer(nn.Module):
    """x ← after(write(x, inside(f(before(read(x))))), where a norm that the placement leaves out is skipped."""

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
        """inside(f(before(x)))."""
        update = branch(x if self.before is None else self.before(x, padding))
        return update if self.inside is None else self.inside(update, padding)
