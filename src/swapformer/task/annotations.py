"""Annotations of the tokens of a corpus of Python source: arrays as long as its ids."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from swapformer.task import cache, python_syntax
from swapformer.task.base import Split
from swapformer.task.corpus import Corpus
from swapformer.task.division import SPLITS, Division, chunks
from swapformer.task.python_syntax import ParsedSource
from swapformer.task.source import Source
from swapformer.task.tokeniser import Tokeniser
from swapformer.task.tokeniser.base import TokenSpans

Arrays = Mapping[str, NDArray[Any]]
Annotate = Callable[[ParsedSource, TokenSpans], Arrays]
"""Gives the annotations of the tokens that a whole text is written with, by name: [n] each."""


@dataclass(frozen=True, eq=False)
class Annotations:
    """Annotations of a corpus: arrays as long as its ids, by name; `fingerprint`: SHA-256 of them and of the corpus."""

    corpus: Corpus
    arrays: Arrays
    fingerprint: str

    def of_split(self, split: Split, name: str) -> NDArray[Any]:
        """The annotation of each token of a split [n]: a view."""
        return self.corpus.of_split(self.arrays[name], split)

    def windows(self, split: Split, name: str, starts: Tensor, length: int) -> Tensor:
        """The annotations of the `length` tokens from each of `starts` [B] of a split on: int64 [B, length]."""
        at = starts.unsqueeze(1) + torch.arange(length)
        return torch.from_numpy(self.of_split(split, name)[at.numpy()].astype(np.int64))


def annotate_corpus(
    source: Source,
    tokeniser: Tokeniser,
    corpus: Corpus,
    fractions: tuple[float, float, float],
    names: Mapping[str, Any],
    annotate: Annotate,
) -> Annotations:
    """The annotations that `annotate` makes of a corpus, an array of its type for each of `names`, made now or earlier.

    `tokeniser`: with what it has learned. UsageError: a text that is no Python source.
    """

    def build(folder: Path) -> dict[str, Any]:
        strict = not tokeniser.any_bytes
        found = {name: np.zeros(len(corpus.ids), dtype=kind) for name, kind in names.items()}
        ends = {split: sum(corpus.lengths[:index]) for index, split in enumerate(SPLITS)}
        for split, document in Division(source, fractions, strict):
            pieces = list(chunks(document, strict))
            written = _token_spans(tokeniser, pieces)
            start, ends[split] = ends[split], ends[split] + len(written.ids)
            tokens = slice(start, ends[split])
            assert np.array_equal(corpus.ids[tokens], written.ids), "a text is written as the corpus has it"
            for name, values in annotate(ParsedSource("".join(pieces), document.name), written).items():
                found[name][tokens] = values
        for name, values in found.items():
            np.save(folder / f"{name}.npy", values)
        return {}

    stamp = source.stamp()
    code = cache.code_hash(__file__, python_syntax.__file__, inspect.getfile(Division), inspect.getfile(annotate))
    facts = [code, corpus.fingerprint, stamp.facts, list(names), fractions]
    cached = cache.cached_arrays(facts, stamp.changed, tuple(names), build)
    fingerprint = hashlib.sha256((corpus.fingerprint + cached.fingerprint).encode()).hexdigest()
    return Annotations(corpus, {name: cached.arrays[name].array for name in names}, fingerprint)


def _token_spans(tokeniser: Tokeniser, pieces: list[str]) -> TokenSpans:
    """A text's tokens with their characters in the whole, written piece by piece."""
    parts, start = [], 0
    for piece in pieces:
        ids, starts, ends = tokeniser.write_with_spans(piece)
        parts.append((ids, starts + start, ends + start))
        start += len(piece)
    nothing = np.zeros(0, dtype=np.int64)
    ids, starts, ends = (np.concatenate([nothing, *(part[index] for part in parts)]) for index in range(3))
    return TokenSpans(ids, starts, ends)
