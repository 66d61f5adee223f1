"""Which parameters decay."""

from __future__ import annotations

from typing import Any

from torch import nn

from swapformer.model.layers import origin_of


def parameter_groups(model: nn.Module, weight_decay: float) -> list[dict[str, Any]]:
    """Two groups by role: matrices and tables with weight decay, biases and gains without. Empty ones are left out."""
    named = list(model.named_parameters())
    decaying = [p for name, p in named if origin_of(name, p).role.is_matrix]
    others = [p for name, p in named if not origin_of(name, p).role.is_matrix]
    groups = [{"params": decaying, "weight_decay": weight_decay}, {"params": others, "weight_decay": 0.0}]
    return [group for group in groups if group["params"]]
