"""What a trial minimises, by the kind of answer."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from swapformer.interface import Readout
from swapformer.model.ops import widen
from swapformer.task.base import IGNORE, scored


def total_loss(readout: Readout, answer: Tensor, targets: Tensor) -> Tensor:
    """The loss summed over all targets: cross-entropy in nats of symbols and classes, squared error of values.

    Args:
        readout: what was asked for.
        answer: logits or values, [B, T, size] or [B, size].
        targets: [B, T] or [B] for symbols and classes; shaped as the answer for values.
    """
    answer = widen(answer)
    if readout.kind == "values":
        there = scored(targets)
        return (answer - torch.where(there, targets, 0.0).to(answer.dtype)).square().masked_fill(~there, 0.0).sum()
    return functional.cross_entropy(answer.flatten(0, -2), targets.flatten(), ignore_index=IGNORE, reduction="sum")
