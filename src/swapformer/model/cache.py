"""What a model keeps while it writes: each new place is computed once, and looks at what was kept of the others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from swapformer.model.tokens import Tokens

Kept = tuple[Tensor, ...]


class Cache:
    """What parts keep of the places read so far, for the sequences of one batch.

    Every part finds what it kept under a key of its own, which holds the part itself. All tensors have the batch as
    their first axis. Attention keeps keys and values before rotation, since an encoding may turn them by what comes
    later; a recurrent mixer keeps its state.

    Attributes:
        tokens: the places read so far; None before the first.
    """

    def __init__(self) -> None:
        self.tokens: Tokens | None = None
        self._kept: dict[object, Kept] = {}

    def extend(self, tokens: Tokens) -> Tokens:
        """Note new places behind those read so far; returns all of them."""
        self.tokens = tokens if self.tokens is None else _joined(self.tokens, tokens)
        return self.tokens

    def kept(self, key: object) -> Kept | None:
        """What is kept under a key; None if nothing is."""
        return self._kept.get(key)

    def keep(self, key: object, *values: Tensor) -> None:
        """Keep values in place of what was kept before."""
        self._kept[key] = values

    def append(self, key: object, *new: Tensor, last: int | None = None) -> Kept:
        """What was kept with `new` behind it along the last axis but one, of which the `last` places stay kept."""
        before = self._kept.get(key)
        values = new if before is None else tuple(torch.cat(pair, -2) for pair in zip(before, new, strict=True))
        self._kept[key] = values if last is None else tuple(value[..., -last:, :] for value in values)
        return values

    def once(self, key: object, make: Callable[[], Kept]) -> Kept:
        """What is kept under a key, made on first use."""
        if key not in self._kept:
            self._kept[key] = make()
        return self._kept[key]

    def select(self, rows: Tensor) -> None:
        """Go on with these sequences of the batch, in this order; one may be taken more than once."""
        self._kept = {key: tuple(value[rows] for value in values) for key, values in self._kept.items()}
        if self.tokens is not None:
            self.tokens = _of_rows(self.tokens, rows)


def _joined(first: Tokens, second: Tokens) -> Tokens:
    """The places of the second behind those of the first."""
    if first.tags.keys() != second.tags.keys():
        raise ValueError(
            f"new places must have the tags of those before, but they have {sorted(second.tags)} and those before "
            f"{sorted(first.tags)}."
        )
    if (first.document is None) != (second.document is None):
        raise ValueError("new places must say which document they belong to exactly if those before do.")
    padding = None
    if first.padding is not None or second.padding is not None:
        padding = _side_by_side(*(_padding(tokens) for tokens in (first, second)))
    document = None
    if first.document is not None and second.document is not None:
        document = _side_by_side(first.document, second.document)
    return Tokens(
        order=_side_by_side(first.order, second.order),
        position=_side_by_side(first.position, second.position),
        extent=max(first.extent, second.extent),
        document=document,
        padding=padding,
        tags={name: _side_by_side(tag, second.tags[name]) for name, tag in first.tags.items()},
    )


def _padding(tokens: Tokens) -> Tensor:
    return torch.zeros_like(tokens.order, dtype=torch.bool) if tokens.padding is None else tokens.padding


def _side_by_side(first: Tensor, second: Tensor) -> Tensor:
    """[B|1, S] and [B|1, T] → [B|1, S+T]."""
    rows = max(len(first), len(second))
    return torch.cat([first.expand(rows, -1), second.expand(rows, -1)], -1)


def _of_rows(tokens: Tokens, rows: Tensor) -> Tokens:
    def cut(values: Tensor | None) -> Tensor | None:
        return values if values is None or len(values) == 1 else values[rows]

    order, position = cut(tokens.order), cut(tokens.position)
    assert order is not None and position is not None
    return replace(
        tokens,
        order=order,
        position=position,
        document=cut(tokens.document),
        padding=cut(tokens.padding),
        tags={name: tag if len(tag) == 1 else tag[rows] for name, tag in tokens.tags.items()},
    )
