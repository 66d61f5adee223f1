"""The cache of generation: keys, values and states of the tokens read so far, so that each is computed once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from swapformer.model.tokens import Tokens

Entry = tuple[Tensor, ...]

BLOCK = 256
"""Tokens that an entry has room for beyond those it holds, whenever it is copied to grow."""


class Cache:
    """Tensors that parts store for the tokens read so far, for the sequences of one batch.

    Every part stores its entry under a key of its own, which holds the part itself. All tensors have the batch as
    their first axis. Attention stores rotated keys, and values; a recurrent mixer stores its state.

    Attributes:
        tokens: the tokens read so far; None before the first.
    """

    def __init__(self) -> None:
        self.tokens: Tokens | None = None
        self._entries: dict[object, Entry] = {}
        self._rooms: dict[object, _Room] = {}

    @property
    def num_bytes(self) -> int:
        """Bytes of what is stored, without the room to grow."""
        return sum(value.numel() * value.element_size() for entry in self._entries.values() for value in entry)

    def extend(self, tokens: Tokens) -> Tokens:
        """Append new tokens to those read so far; returns all of them."""
        self.tokens = tokens if self.tokens is None else _joined(self.tokens, tokens)
        return self.tokens

    def get(self, key: object) -> Entry | None:
        """The entry under a key; None without one."""
        return self._entries.get(key)

    def put(self, key: object, *values: Tensor) -> None:
        """Store values as the entry under a key, instead of the one before."""
        self._entries[key] = values

    def append(self, key: object, *new: Tensor, last: int | None = None) -> Entry:
        """The entry with `new` appended along the last axis but one, of which the `last` tokens stay stored."""
        before = self._entries.get(key)
        if before is None:
            values = new
        elif torch.is_grad_enabled() and any(value.requires_grad for value in (*before, *new)):
            self._rooms.pop(key, None)  # a tensor that is written to again has no gradient
            values = tuple(torch.cat(pair, -2) for pair in zip(before, new, strict=True))
        else:
            room = self._rooms.get(key)
            if room is None or not room.fits(new):
                room = self._rooms[key] = _Room(before, new)
            values = room.extend(before, new)
        self._entries[key] = values if last is None else tuple(value[..., -last:, :] for value in values)
        return values

    def once(self, key: object, make: Callable[[], Entry]) -> Entry:
        """The entry under a key, made on first use."""
        if key not in self._entries:
            self._entries[key] = make()
        return self._entries[key]

    def select(self, rows: Tensor) -> None:
        """Keep these sequences of the batch, in this order; one may be taken more than once."""
        self._entries = {key: tuple(value[rows] for value in values) for key, values in self._entries.items()}
        self._rooms.clear()
        if self.tokens is not None:
            self.tokens = _rows_of(self.tokens, rows)


class _Room:
    """Memory for an entry that grows along its last axis but one, in blocks: most tokens are written, none is copied.

    What was returned before stays as it was, since tokens are only written behind it.
    """

    def __init__(self, before: Entry, new: Entry) -> None:
        self.end = before[0].shape[-2]
        self.size = self.end + new[0].shape[-2] + BLOCK
        self.tensors = tuple(old.new_empty(*old.shape[:-2], self.size, old.shape[-1]) for old in before)
        for tensor, old in zip(self.tensors, before, strict=True):
            tensor[..., : self.end, :] = old

    def fits(self, new: Entry) -> bool:
        return self.end + new[0].shape[-2] <= self.size

    def extend(self, before: Entry, new: Entry) -> Entry:
        """`before`, which ends where this room's tokens end, with `new` behind it."""
        start, written = self.end - before[0].shape[-2], self.end
        self.end += new[0].shape[-2]
        for tensor, value in zip(self.tensors, new, strict=True):
            tensor[..., written : self.end, :] = value
        return tuple(tensor[..., start : self.end, :] for tensor in self.tensors)


def _joined(first: Tokens, second: Tokens) -> Tokens:
    """The tokens of the second after those of the first."""
    if first.tags.keys() != second.tags.keys():
        raise ValueError(
            f"new tokens must have the tags of those before, but they have {sorted(second.tags)} and those before "
            f"{sorted(first.tags)}."
        )
    if (first.document is None) != (second.document is None):
        raise ValueError("new tokens must say which document they belong to exactly if those before do.")
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


def _rows_of(tokens: Tokens, rows: Tensor) -> Tokens:
    def cut(values: Tensor) -> Tensor:
        return values if len(values) == 1 else values[rows]

    return replace(tokens, **tokens.channels(cut), tags={name: cut(tag) for name, tag in tokens.tags.items()})
