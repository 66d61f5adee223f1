"""Auxiliary losses: what a part wants beside the task's loss."""

from __future__ import annotations

from torch import Tensor, nn


def take_auxiliary_loss(model: nn.Module) -> Tensor | None:
    """The sum of what the last forward in training left in `auxiliary_loss`, and forget it; None if nothing was left.

    Any module may leave a scalar there, weighted as it shall enter the training loss; records and metrics keep the
    task's loss alone.
    """
    total: Tensor | None = None
    for module in model.modules():
        loss = getattr(module, "auxiliary_loss", None)
        if loss is not None:
            module.auxiliary_loss = None  # type: ignore[assignment]
            total = loss if total is None else total + loss
    return total
