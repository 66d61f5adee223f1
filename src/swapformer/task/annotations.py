"""What is said of each token of a corpus of Python source: arrays as long as its ids."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from swapformer.task import cache, code
from swapformer.task.base import Split
from swapformer.task.corpus import Corpus
from swapformer.task.division import SPLITS, Division, chunks
from swapformer.task.python_syntax import Parsed
from swapformer.task.source import Source
from swapformer.task.tokeniser import Tokeniser
from swapformer.task.tokeniser.base import Written

Arrays = Mapping[str, NDArray[Any]]
Annotate = Callable[[Parsed, Written], Arrays]
"""What is said of the tokens that a whole text is written with, by name: [n] each."""


@dataclass(frozen=True, eq=False)
class Annotations:
    """Arrays as long as a corpus's ids, by name; `fingerprint`: SHA-256 (hex) of them and of the corpus."""

    corpus: Corpus
    arrays: Arrays
    fingerprint: str

    def of_split(self, split: Split, name: str) -> NDArray[Any]:
        """What is said of each token of a split [n]: a view."""
        return self.corpus.of_split(self.arrays[name], split)

    def take(self, split: Split, name: str, places: Tensor, length: int) -> Tensor:
        """What is said of the `length` tokens from each of `places` [B] of a split on: int64 [B, length]."""
        at = places.unsqueeze(1) + torch.arange(length)
        return torch.from_numpy(self.of_split(split, name)[at.numpy()].astype(np.int64))


def annotations_of(
    source: Source,
    tokeniser: Tokeniser,
    corpus: Corpus,
    fractions: tuple[float, float, float],
    names: Mapping[str, Any],
    annotate: Annotate,
) -> Annotations:
    """What `annotate` says of a corpus, for each of `names` an array of its type, made now or earlier.

    `tokeniser`: with what it has learned. UsageError: a text that is no Python source.
    """
    stamp = source.stamp()
    made_by = cache.code_of(
        __file__, str(Path(code.__file__).parent), inspect.getfile(Division), inspect.getfile(annotate)
    )
    facts = [made_by, corpus.fingerprint, stamp.facts, list(names), fractions]
    make = partial(_build, source, tokeniser, corpus, fractions, names, annotate)
    kept = cache.kept(facts, stamp.changed, tuple(names), make)
    fingerprint = hashlib.sha256((corpus.fingerprint + kept.fingerprint).encode()).hexdigest()
    return Annotations(corpus, {name: kept.arrays[name].array for name in names}, fingerprint)


def _build(
    source: Source,
    tokeniser: Tokeniser,
    corpus: Corpus,
    fractions: tuple[float, float, float],
    names: Mapping[str, Any],
    annotate: Annotate,
    folder: Path,
) -> dict[str, Any]:
    strict = not tokeniser.any_bytes
    found = {name: np.zeros(len(corpus.ids), dtype=kind) for name, kind in names.items()}
    ends = {split: sum(corpus.lengths[:index]) for index, split in enumerate(SPLITS)}
    for split, document in Division(source, fractions, strict):
        pieces = list(chunks(document, strict))
        written = _written(tokeniser, pieces)
        start, ends[split] = ends[split], ends[split] + len(written.ids)
        place = slice(start, ends[split])
        assert np.array_equal(corpus.ids[place], written.ids), "a text is written as the corpus has it"
        for name, values in annotate(Parsed("".join(pieces), document.name), written).items():
            found[name][place] = values
    for name, values in found.items():
        np.save(folder / f"{name}.npy", values)
    return {}


def _written(tokeniser: Tokeniser, pieces: list[str]) -> Written:
    """A text's tokens with their characters in the whole, written piece by piece."""
    parts, start = [], 0
    for piece in pieces:
        ids, starts, ends = tokeniser.write_with_places(piece)
        parts.append((ids, starts + start, ends + start))
        start += len(piece)
    nothing = np.zeros(0, dtype=np.int64)
    ids, starts, ends = (np.concatenate([nothing, *(part[index] for part in parts)]) for index in range(3))
    return Written(ids, starts, ends)
