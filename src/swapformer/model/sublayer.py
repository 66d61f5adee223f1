"""One residual branch with its norms."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn

from swapformer.model.norm import Norm
from swapformer.model.placement import Placement
from swapformer.model.residual import Residual

Branch = Callable[[Tensor], Tensor]


class Sublayer(nn.Module):
    """x ← after(write(x, inside(f(before(read(x))))), where a norm that the placement leaves out is skipped."""

    def __init__(self, norm: Callable[[], Norm], residual: Residual, placement: Placement) -> None:
        super().__init__()
        self.before = norm() if placement.before else None
        self.inside = norm() if placement.inside else None
        self.after = norm() if placement.after else None
        self.residual = residual

    def forward(self, state: Tensor, branch: Branch) -> Tensor:
        x = self.residual.read(state)
        update = branch(x if self.before is None else self.before(x))
        state = self.residual.write(state, update if self.inside is None else self.inside(update))
        return state if self.after is None else self.after(state)
