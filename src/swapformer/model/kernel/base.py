"""The kernel slot's base."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

from torch import Tensor

from swapformer.model.context import Context
from swapformer.model.normaliser import Normaliser
from swapformer.model.pattern import Pattern
from swapformer.model.position import Position
from swapformer.model.score import Score
from swapformer.ranges import Declared


@dataclass(frozen=True, eq=False)
class AttentionPlan:
    """The parts of an attention that a kernel computes: score, normaliser and pattern."""

    score: Score
    normaliser: Normaliser
    pattern: Pattern


class Kernel(Declared, ABC):
    """Base of the slot: computes attention from queries, keys and values.

    Facts:
        accelerator: the kind of device that it needs, cpu or gpu as in trainer.accelerator; None for any.
    """

    accelerator: str | None = None

    def refuses(self, plan: AttentionPlan, position: Position) -> str | None:
        """The reason why this kernel cannot compute such an attention; None if it can."""
        return None

    def loses_on_gpu(self, plan: AttentionPlan) -> str | None:
        """A saving of this kernel on a CPU that it leaves out on a GPU; None if nothing."""
        return None

    @abstractmethod
    def __call__(
        self, q: Tensor, k: Tensor, v: Tensor, plan: AttentionPlan, position: Position, context: Context, dropout: float
    ) -> Tensor:
        """The output [B, H, Q, E] for q [B, H, Q, E] and k, v [B, G, K, E], which are rotated already.

        G divides H: H/G neighbouring query heads share a group of keys and values, which are never copied for each.
        """


def beyond_fused(name: str, plan: AttentionPlan, position: Position) -> str | None:
    """The reason why torch's fused softmax(scale · q·k + bias) · v, which the kernel `name` calls, does not fit."""
    if not plan.normaliser.is_softmax:
        return f"kernel {name} computes softmax only, not {type(plan.normaliser).__name__}"
    if not plan.score.is_dot:
        return f"kernel {name} computes dot products only, not {type(plan.score).__name__}"
    if position.has_scores:
        return f"kernel {name} cannot add the content-dependent scores of {type(position).__name__}"
    return None
