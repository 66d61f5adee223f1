"""Tokens of sequences as positions, masks and patterns see them: order, position, document, padding and tags."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Tokens:
    """Order, position, document, padding and tags of the T tokens of each sequence. Build it with `Tokens.of`.

    Attributes:
        order: true position in the sequence, int64 [B|1, T]; causality compares it.
        position: the position that encodings see, int64 [B|1, T]; may be offset, reset or randomised.
        extent: one more than the largest position, known without reading the tensor.
        document: index of the document that a token belongs to, int64 [B|1, T]; documents do not see each other.
        padding: True where a token is padding, bool [B|1, T]; nothing attends to padding.
        tags: named integer channels [B|1, T] that a task supplies: speaker, turn, block, definition …
        consecutive: whether `order` is 0 … T−1 in every row.
        bounds: no position is smaller or larger, known without reading the tensor; all of `extent` unless given.
    """

    order: Tensor
    position: Tensor
    extent: int
    document: Tensor | None = None
    padding: Tensor | None = None
    tags: Mapping[str, Tensor] = field(default_factory=dict)
    consecutive: bool = False
    bounds: tuple[int, int] = (0, -1)

    def __post_init__(self) -> None:
        if self.bounds == (0, -1):
            object.__setattr__(self, "bounds", (0, self.extent - 1))

    @classmethod
    def of(
        cls,
        length: int,
        *,
        start: int = 0,
        device: torch.device | str | None = None,
        position: Tensor | None = None,
        document: Tensor | None = None,
        padding: Tensor | None = None,
        tags: Mapping[str, Tensor] | None = None,
        extent: int | None = None,
    ) -> Tokens:
        """`length` tokens in a row, from order `start` on; encodings see the order unless `position` is given.

        `extent`: the largest of these positions plus 1; read from them where it is not given.
        """
        order = torch.arange(start, start + length, device=device)[None]
        if position is None:
            extent = start + length
        elif extent is None:
            extent = int(position.max()) + 1
        return cls(
            order=order,
            position=order if position is None else position,
            extent=extent,
            document=document,
            padding=padding,
            tags={} if tags is None else tags,
            consecutive=start == 0,
            bounds=(start, extent - 1) if position is None else (0, extent - 1),
        )

    def __len__(self) -> int:
        return self.order.shape[-1]

    def at(self, index: slice | Tensor) -> Tokens:
        """Some of these tokens, by index; they keep their order, position, document, padding and tags."""
        channels = self.channels(lambda values: values[:, index])
        return Tokens(**channels, extent=self.extent, tags=_TagsAt(self.tags, index), bounds=self._bounds_at(index))

    def channels(self, cut: Callable[[Tensor], Tensor]) -> dict[str, Any]:
        """The results of `cut` for order, position, document and padding, by name; without those that are None."""
        found = {name: getattr(self, name) for name in ("order", "position", "document", "padding")}
        return {name: cut(values) for name, values in found.items() if values is not None}

    def _bounds_at(self, index: slice | Tensor) -> tuple[int, int]:
        """The bounds of some tokens: narrower for a slice of tokens whose positions are their true ones."""
        if isinstance(index, slice) and self.position is self.order and (run := range(len(self))[index]):
            return self.bounds[0] + min(run), self.bounds[0] + max(run)
        return self.bounds


class _TagsAt(Mapping[str, Tensor]):
    """The tags of some tokens, cut when they are read."""

    def __init__(self, tags: Mapping[str, Tensor], index: slice | Tensor) -> None:
        self._tags, self._index = tags, index

    def __getitem__(self, name: str) -> Tensor:
        return self._tags[name][:, self._index]

    def __iter__(self) -> Iterator[str]:
        return iter(self._tags)

    def __len__(self) -> int:
        return len(self._tags)
