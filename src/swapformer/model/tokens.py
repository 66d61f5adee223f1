"""What a model knows of the tokens of its sequences: order, position, document, padding and tags."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Tokens:
    """What each of T places is. Build it with `Tokens.of`.

    Attributes:
        order: true place in the sequence, int64 [B|1, T]; causality compares it.
        position: what encodings see, int64 [B|1, T]; may be offset, reset or randomised.
        extent: one more than the largest position, known without reading the tensor.
        document: index of the document that a place belongs to, int64 [B|1, T]; documents do not see each other.
        padding: True where a place is padding, bool [B|1, T]; padding is never seen.
        tags: named integer channels [B|1, T] that a task supplies.
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
    ) -> Tokens:
        """`length` places in a row, the first at place `start`; positions are the places unless given."""
        order = torch.arange(start, start + length, device=device)[None]
        extent = start + length if position is None else int(position.max()) + 1
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

    def at(self, places: slice | Tensor) -> Tokens:
        """Some of these places, by index: they keep what they are, true order and position included."""

        def cut(values: Tensor | None) -> Tensor | None:
            return None if values is None else values[:, places]

        return Tokens(
            order=self.order[:, places],
            position=self.position[:, places],
            extent=self.extent,
            document=cut(self.document),
            padding=cut(self.padding),
            tags=_TagsAt(self.tags, places),
            bounds=self._bounds_at(places),
        )

    def _bounds_at(self, places: slice | Tensor) -> tuple[int, int]:
        """Narrower for a slice of places that are encoded where they stand."""
        if isinstance(places, slice) and self.position is self.order and (run := range(len(self))[places]):
            return self.bounds[0] + min(run), self.bounds[0] + max(run)
        return self.bounds


class _TagsAt(Mapping[str, Tensor]):
    """The tags of some places, cut when they are read."""

    def __init__(self, tags: Mapping[str, Tensor], places: slice | Tensor) -> None:
        self._tags, self._places = tags, places

    def __getitem__(self, name: str) -> Tensor:
        return self._tags[name][:, self._places]

    def __iter__(self) -> Iterator[str]:
        return iter(self._tags)

    def __len__(self) -> int:
        return len(self._tags)
