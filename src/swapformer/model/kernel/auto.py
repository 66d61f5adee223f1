"""The kernel that chooses."""

from __future__ import annotations

from torch import Tensor

from swapformer.model.context import Context
from swapformer.model.dims import Dims
from swapformer.model.kernel.base import AttentionPlan, Kernel
from swapformer.model.kernel.blocked import Blocked
from swapformer.model.kernel.reference import Reference
from swapformer.model.kernel.sdpa import SDPA
from swapformer.model.position import Position


class Auto(Kernel):
    """The fastest kernel that can do what is asked: blocked where it pays, else sdpa, else reference.

    On a GPU blocked is never chosen: many small blocks leave it idle. Flex is for the user to choose: it is compiled
    for every length, and the gradient of a learned bias is summed in no fixed order, so a trial would not resume
    bit-equal. It pays where a learned bias meets thousands of places.
    """

    def __init__(self, dims: Dims) -> None:
        self.banded, self.fused, self.general = Blocked(dims), SDPA(dims, backend="auto"), Reference(dims)

    def refuses(self, plan: AttentionPlan, position: Position) -> None:
        return None

    def __call__(
        self, q: Tensor, k: Tensor, v: Tensor, plan: AttentionPlan, position: Position, context: Context, dropout: float
    ) -> Tensor:
        kernel = self._fastest(plan, position, context, on_gpu=q.is_cuda)
        return kernel(q, k, v, plan, position, context, dropout)

    def _fastest(self, plan: AttentionPlan, position: Position, context: Context, *, on_gpu: bool) -> Kernel:
        if not on_gpu and self.banded.pays(plan, context) and not self.banded.refuses(plan, position):
            return self.banded
        return self.general if self.fused.refuses(plan, position) else self.fused
