"""Which examples of validation and test are read in training too, word for word, and so are not judged."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from swapformer.errors import UsageError
from swapformer.task import cache
from swapformer.task.base import Places, Split
from swapformer.task.labelled.examples import Examples

_AT_ONCE = 1024
"""Examples that are placed together."""
_JUDGED: tuple[Split, Split] = ("val", "test")

Place = Callable[[NDArray[np.int64]], Places]


def unseen(examples: Examples, place: Place, facts: Sequence[object]) -> dict[Split, NDArray[np.int64]]:
    """The examples of validation and test whose text is not that of a training example once it is cut to its places.

    `place`: what is read of examples with certain numbers; `facts`: JSON that identifies how. Kept between runs.
    UsageError: none is left of a split.
    """
    found = cache.kept([examples.fingerprint, *facts], 0, _JUDGED, partial(_build, examples, place))
    left = {split: np.array(found.arrays[split].array) for split in _JUDGED}
    for split, rows in left.items():
        if (count := len(examples.rows(split))) and not len(rows):
            raise UsageError(
                f"the {split} split must have rows that training has not, but all of its {count} are read in training "
                "too, word for word, once they are cut; raise task.block, or give more rows"
            )
    return left


def _build(examples: Examples, place: Place, folder: Path) -> Mapping[str, object]:
    seen = set(_read(examples, "train", place))
    for split in _JUDGED:
        known = np.fromiter((text in seen for text in _read(examples, split, place)), dtype=bool)
        np.save(folder / f"{split}.npy", examples.rows(split).start + np.flatnonzero(~known))
    return {}


def _read(examples: Examples, split: Split, place: Place) -> Iterator[bytes]:
    """What is read of each example of a split, as a digest."""
    rows = examples.rows(split)
    for start in range(rows.start, rows.stop, _AT_ONCE):
        inputs = place(np.arange(start, min(start + _AT_ONCE, rows.stop))).inputs
        yield from (hashlib.blake2b(row.tobytes(), digest_size=16).digest() for row in inputs.numpy())
