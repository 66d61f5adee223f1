"""Sums over evaluated items, kept with a trial's metrics: they say whether a verdict holds for other text.

An item is about 1 024 scored tokens in a row, of whole sequences: blocks of one text are not independent, so that
shorter items would promise too much. Of a small evaluation set items are smaller, so that there are at least 32.

`items.npz` has for each evaluation set, such as `val@64`, an array [items, 6] of float32: its sums (`COLUMNS`).
"""

from __future__ import annotations

import io
import zipfile
import zlib
from collections.abc import Collection, Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from swapformer.results.files import move, temporary_of

Items = Mapping[str, NDArray[np.float64]]
"""Evaluation set → sums [items, 6]."""
ItemMeans = Mapping[tuple[int, ...], Items]
"""Seeds of an arm, in their order → the mean of their items."""
FILE = "items.npz"
COLUMNS = ("nats", "tokens", "hits", "bytes", "matches", "sequences")
TOKENS, FEWEST = 1024, 32
"""Scored tokens of an item, and how many items there are at least, where there are as many sequences."""


def grouped(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """Sums over items of the rows [sequences, 6] of an evaluation set, in their order."""
    tokens = rows[:, 1]
    size = min(float(TOKENS), float(tokens.sum()) / FEWEST)
    # A sequence belongs to the item in which its first token lies, so that items differ by a sequence at most.
    begins = np.cumsum(tokens) - tokens
    item = np.floor(begins / max(size, 1e-9) + 1e-9).astype(int)
    item = np.minimum(item, item[tokens > 0].max(initial=0))  # the last sequences may have no token to score
    _, item = np.unique(item, return_inverse=True)
    found = np.zeros((int(item.max()) + 1 if len(item) else 0, len(COLUMNS)))
    np.add.at(found, item, rows)
    return found


def write_items(path: Path, items: Items) -> None:
    """Write items, durably; nothing without any. Raises OSError."""
    if not items:
        return
    draft = temporary_of(path)
    draft.write_bytes(npz(items))
    move(draft, path)


def npz(items: Items) -> bytes:
    """The content of a file of items; empty without any. The same items give the same bytes."""
    if not items:
        return b""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as held:
        for name, rows in items.items():
            array = io.BytesIO()
            np.lib.format.write_array(array, rows.astype(np.float32), allow_pickle=False)
            held.writestr(zipfile.ZipInfo(f"{name}.npy"), array.getvalue(), zipfile.ZIP_DEFLATED)
    return file.getvalue()


def read_items(path: Path) -> Items:
    """The items in a file; none where it is missing, cut or not such a file."""
    try:
        with zipfile.ZipFile(io.BytesIO(path.read_bytes())) as held:
            found = {
                name.removesuffix(".npy"): np.lib.format.read_array(io.BytesIO(held.read(name)), allow_pickle=False)
                for name in held.namelist()
            }
    except (OSError, ValueError, KeyError, EOFError, zlib.error, zipfile.BadZipFile):
        return {}
    found = {name: np.asarray(rows, dtype=np.float64) for name, rows in found.items()}
    return {name: rows for name, rows in found.items() if rows.ndim == 2 and rows.shape[1] == len(COLUMNS)}


def items_of(means: ItemMeans, seeds: Collection[int]) -> Items:
    """The mean of the items of these seeds; nothing where those of some of them are not known.

    Tables of older versions have no more than the mean over all seeds, which then stands for that over some of them.
    """
    wanted = tuple(sorted(seeds))
    wider = sorted((each for each in means if len(each) > 1 and set(wanted) <= set(each)), key=len)
    if wanted and wider:
        return means[wider[0]]
    return mean_items([means.get((seed,), {}) for seed in wanted])


def mean_items(seeds: list[Items]) -> dict[str, NDArray[np.float64]]:
    """The mean over seeds of each set that all of them have with the same items."""
    if not seeds:
        return {}
    found = {}
    for name, first in seeds[0].items():
        rows = [each.get(name) for each in seeds]
        if all(row is not None and np.array_equal(row[:, 1:2], first[:, 1:2]) for row in rows):
            found[name] = np.mean(np.array(rows), axis=0)
    return found
