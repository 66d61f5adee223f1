"""Training batches that are made several at a time: many small tensors take as long as one large one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from typing import Any

from torch import Tensor

from swapformer.task.base import Batch, Places
from swapformer.task.layout import padding_or_none


class Blocks:
    """Batches of `size` rows, `ahead` of which are made at once; the block that was asked for last is kept.

    `make`: (seed, number of a block) → its batches as one, a pure function.
    """

    def __init__(self, make: Callable[[int, int], Batch], size: int, ahead: int) -> None:
        self.make, self.size, self.ahead = make, size, ahead
        self._kept: tuple[tuple[int, int], Batch] | None = None

    def batch(self, seed: int, step: int) -> Batch:
        """Batch number `step`, which is the caller's own."""
        block, offset = divmod(step, self.ahead)
        if self._kept is None or self._kept[0] != (seed, block):
            self._kept = (seed, block), self.make(seed, block)
        batch: Batch = part(self._kept[1], offset * self.size, (offset + 1) * self.size)
        return batch


def part(places: Any, low: int, high: int) -> Any:
    """Rows `low` … `high` of a batch, of a source or of a tensor, as copies."""
    if isinstance(places, Tensor):
        return places[low:high].clone()
    if isinstance(places, Mapping):
        return {name: part(channel, low, high) for name, channel in places.items()}
    if isinstance(places, Places):
        cut = {one.name: part(getattr(places, one.name), low, high) for one in fields(places)}
        padding = cut.pop("padding")
        return replace(places, **cut, padding=None if padding is None else padding_or_none(padding))
    return places
