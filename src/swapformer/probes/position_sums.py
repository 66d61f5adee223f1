"""What is found at each place of a sequence."""

from __future__ import annotations

from torch import Tensor


def totals_by_place(values_BT: Tensor, counted_BT: Tensor) -> tuple[Tensor, Tensor]:
    """Sums of what counts at each place and how many sequences count there, [T] each.

    Args:
        values_BT: one number for each place; those that do not count may be anything, NaN included.
        counted_BT: which count, bool.
    """
    return values_BT.masked_fill(~counted_BT, 0.0).sum(dim=0), counted_BT.sum(dim=0)
