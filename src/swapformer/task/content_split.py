"""The splits of synthetic items, decided only by their content, so that no item is in two of them.

The 63-bit hash of an item is compared with two thresholds: below the first validation, below the second test, else
training. Where the items of one length can be listed, the thresholds are order statistics of their hashes, so the
shares are exact however small the space; elsewhere they are fixed fractions of the hash's range.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil

import torch
from torch import Tensor

from swapformer.errors import UsageError
from swapformer.task.base import Split

SHARES: dict[Split, float] = {"train": 0.8, "val": 0.1, "test": 0.1}
LISTED = 10_000
"""The items of a length are listed where there are no more than this."""
FEWEST = 4
"""Each split must have at least this many items of each length."""


def _shift(x: Tensor, bits: int) -> Tensor:
    """Logical shift to the right of int64 (torch's own one copies the sign)."""
    return (x >> bits) & ((1 << (64 - bits)) - 1)


def _signed(word: int) -> int:
    return word - (1 << 64) if word >> 63 else word


def _mix(x: Tensor) -> Tensor:
    """One step of SplitMix64 on int64 (Steele, Lea, Flood 2014): a bijection that mixes every bit with all."""
    x = x + _signed(0x9E3779B97F4A7C15)
    x = (x ^ _shift(x, 30)) * _signed(0xBF58476D1CE4E5B9)
    x = (x ^ _shift(x, 27)) * _signed(0x94D049BB133111EB)
    return x ^ _shift(x, 31)


class ContentSplit:
    """Assigns items [N,P,W] to splits by their content.

    An item is P parts of W symbols < `alphabet`, which itself is filler. `longest`: the longest length of an item;
    `shares`: of the splits; `ordered`: whether the same parts in another order are another item.
    """

    def __init__(
        self, alphabet: int, width: int, longest: int, shares: Mapping[Split, float] = SHARES, ordered: bool = False
    ) -> None:
        self.alphabet, self.shares, self.ordered = alphabet, shares, ordered
        positions = torch.arange(width).unsqueeze(1) << 32
        table = _mix(positions + torch.arange(1, alphabet + 2))
        table[:, alphabet] = 0
        self._table = table.flatten()
        self._offsets = torch.arange(width) * (alphabet + 1)
        bound = torch.tensor([shares["val"], shares["val"] + shares["test"]], dtype=torch.float64) * 2.0**63
        self._thresholds = bound.long().repeat(longest + 1, 1)
        self.training_items: dict[int, int] = {}
        """How many items training has, of each length whose items were listed."""

    def hash(self, content: Tensor) -> Tensor:
        """[N] int64 ≥ 0. Tabulation hashing of each part (a random word per position and symbol), mixed and summed."""
        words = self._table[content + self._offsets[: content.shape[2]]].sum(2)
        if self.ordered:
            words = _mix(words) + torch.arange(content.shape[1])
        return _mix(words).sum(1) & 0x7FFF_FFFF_FFFF_FFFF

    def distinct(self, content: Tensor) -> Tensor:
        """The different ones among items [N,P,W]."""
        hashes, order = self.hash(content).sort()
        first = torch.cat([hashes.new_ones(1, dtype=torch.bool), hashes[1:] != hashes[:-1]])
        return content[order[first]]

    def list_all(self, length: int, content: Tensor, remedy: str) -> None:
        """Make the shares exact for `length`, whose items are all in `content`; UsageError where there are too few."""
        hashes = self.hash(content).sort().values
        val, test = self.shares["val"], self.shares["test"]
        first, second = int(len(hashes) * val), int(len(hashes) * (val + test))
        if min(first, second - first, len(hashes) - second) < FEWEST:
            raise UsageError(
                f"a length needs {ceil(FEWEST / min(self.shares.values()))} different items so that each split has "
                f"{FEWEST}, but length {length} has only {len(hashes)}; {remedy}"
            )
        self._thresholds[length] = torch.stack([hashes[first], hashes[second]])
        self.training_items[length] = len(hashes) - second

    def contains(self, split: Split, content: Tensor, lengths: Tensor) -> Tensor:
        """[N] bool: whether each item belongs to `split`; `lengths` [N]."""
        hashes = self.hash(content)
        first, second = self._thresholds[lengths].unbind(1)
        if split == "train":
            return hashes >= second
        return hashes < first if split == "val" else (hashes >= first) & (hashes < second)
