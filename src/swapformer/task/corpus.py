"""A text as one array of token ids: its splits, its documents, its vocabulary, and what identifies it all."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from swapformer.task.base import Split
from swapformer.task.division import SPLITS
from swapformer.task.tokeniser import Learned


@dataclass(frozen=True, eq=False)
class Corpus:
    """Token ids of all documents, training first, then validation, then test; usually mapped from a file.

    `ids` [n]; `offsets` [D+1] int64: document d is ids[offsets[d]:offsets[d+1]], and none is empty. `lengths` and
    `documents`: how many tokens and documents each split has. `learned`: what the tokeniser has learned from the
    training text. `fingerprint`: SHA-256 of all of this, in hex. `release` gives back the memory of ids that
    have been read.
    """

    ids: NDArray[Any]
    offsets: NDArray[np.int64]
    lengths: tuple[int, int, int]
    documents: tuple[int, int, int]
    learned: Learned
    fingerprint: str
    release: Callable[[], None]

    def split(self, name: Split) -> NDArray[Any]:
        """The token ids of a split [n]: a view."""
        return self.of_split(self.ids, name)

    def of_split(self, values: NDArray[Any], name: Split) -> NDArray[Any]:
        """The part of an array as long as the ids that belongs to a split: a view."""
        first, last = _bounds(self.lengths, name)
        return values[first:last]

    def begins(self, name: Split) -> NDArray[np.int64]:
        """Where the documents of a split begin in `split(name)`, and at last where it ends [d+1]."""
        first, last = _bounds(self.documents, name)
        return np.asarray(self.offsets[first : last + 1]) - self.offsets[first]


def _bounds(counts: tuple[int, int, int], name: Split) -> tuple[int, int]:
    index = SPLITS.index(name)
    first = sum(counts[:index])
    return first, first + counts[index]
