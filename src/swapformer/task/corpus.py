"""A text as one array of token ids: its splits, its documents, its vocabulary, and how it is tokenised."""

from __future__ import annotations

import inspect
import shutil
from array import array
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from swapformer.task import cache
from swapformer.task import source as sources
from swapformer.task import tokeniser as tokenisers
from swapformer.task.base import Split
from swapformer.task.division import SPLITS, Division, chunks
from swapformer.task.source import Source
from swapformer.task.tokeniser import LearnedTokens, Tokeniser
from swapformer.task.tokeniser.base import Ids


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
    learned: LearnedTokens
    fingerprint: str
    release: Callable[[], None]

    @property
    def nbytes(self) -> int:
        """Bytes of the ids."""
        return self.ids.nbytes

    def split(self, name: Split) -> Any:
        """The token ids of a split [n]: a view, or what is read like one."""
        return self.of_split(self.ids, name)

    def of_split(self, values: NDArray[Any], name: Split) -> NDArray[Any]:
        """The part of an array as long as the ids that belongs to a split: a view."""
        first, last = _bounds(self.lengths, name)
        return values[first:last]

    def begins(self, name: Split) -> NDArray[np.int64]:
        """The starts of the documents of a split in `split(name)`, and at last where it ends [d+1]."""
        first, last = _bounds(self.documents, name)
        return np.asarray(self.offsets[first : last + 1]) - self.offsets[first]


def _bounds(counts: tuple[int, int, int], name: Split) -> tuple[int, int]:
    index = SPLITS.index(name)
    first = sum(counts[:index])
    return first, first + counts[index]


_AT_ONCE = 1 << 20
"""Characters that are handed to the tokeniser together, so that it can use every core."""
_ENOUGH = 1 << 26
"""Characters that a vocabulary is learned from at most, evenly spread: its counts are kept in memory."""


def corpus_of(
    source: Source, tokeniser: Tokeniser, special: Sequence[str], fractions: tuple[float, float, float]
) -> Corpus:
    """The corpus of a source, tokenised now or earlier.

    `special`: the special tokens that the task needs. `fractions`: of training, validation and test.
    UsageError: what source, tokeniser or division say of it.
    """

    if (ready := source.tokenised(tokeniser, special)) is not None:
        return ready

    def build(folder: Path) -> dict[str, Any]:
        strict = not tokeniser.any_bytes
        division = Division(source, fractions, strict)
        learned = tokeniser.learn(LearningText(division, tokeniser, strict), names, source.min_count)
        sizes = _tokenise(division, tokeniser.with_learned(learned), strict, folder)
        dtype = np.dtype(np.min_scalar_type(len(learned.tokens) - 1))
        lengths = [int(sum(sizes[split])) for split in SPLITS]
        with (folder / "ids.npy").open("wb") as file:
            header = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": (sum(lengths),)}
            np.lib.format.write_array_header_1_0(file, header)
            for split in SPLITS:
                with (folder / split).open("rb") as part:
                    shutil.copyfileobj(part, file)
        ends = np.cumsum(np.concatenate([np.zeros(1, dtype=np.int64), *(sizes[split] for split in SPLITS)]))
        np.save(folder / "offsets.npy", ends)
        return {"lengths": lengths, "documents": [len(sizes[split]) for split in SPLITS], "learned": asdict(learned)}

    stamp = source.stamp()
    names = tokeniser.all_special(special)
    code = cache.code_hash(__file__, inspect.getfile(Division), *code_of_parts(source, tokeniser))
    kinds = [type(source).__qualname__, type(tokeniser).__qualname__]
    facts = [code, kinds, stamp.facts, tokeniser.settings(), names, fractions]
    found = cache.cached_arrays(facts, stamp.changed, ("ids", "offsets"), build)
    return Corpus(
        ids=found.arrays["ids"].array,
        offsets=found.arrays["offsets"].array,
        lengths=_three(found.header["lengths"]),
        documents=_three(found.header["documents"]),
        learned=LearnedTokens.from_json(found.header["learned"]),
        fingerprint=found.fingerprint,
        release=found.arrays["ids"].release,
    )


def code_of_parts(source: Source, tokeniser: Tokeniser) -> list[str | None]:
    """The paths of the code that a source and a tokeniser work with."""
    packages = (str(Path(package.__file__).parent) for package in (sources, tokenisers) if package.__file__)
    return [*packages, *(inspect.getsourcefile(type(part)) for part in (source, tokeniser))]


class LearningText:
    """The text that a tokeniser may learn from, in chunks; it can be gone through any number of times."""

    def __init__(self, division: Division, tokeniser: Tokeniser, strict: bool) -> None:
        everything = tokeniser.learns_from == "everything"
        self._division, self._strict = division, strict
        self._splits = SPLITS if everything else SPLITS[:1]
        total = division.characters["train"]
        self._every = 1 if everything else -(-total // _ENOUGH)

    def __iter__(self) -> Iterator[str]:
        number = 0
        for split, document in self._division:
            if split in self._splits:
                for chunk in chunks(document, self._strict):
                    if number % self._every == 0:
                        yield chunk
                    number += 1


def _tokenise(division: Division, tokeniser: Tokeniser, strict: bool, folder: Path) -> dict[Split, array[int]]:
    """Write the ids of each split to a file with its name; return where its documents end, empty ones left out."""
    dtype = np.min_scalar_type(len(tokeniser.learned.tokens) - 1)
    sizes = {split: array("q") for split in SPLITS}
    length = 0
    with ExitStack() as stack:
        files = {split: stack.enter_context((folder / split).open("wb")) for split in SPLITS}
        for batch in _batches(division, strict):
            parts: dict[Split, list[Ids]] = {split: [] for split in SPLITS}
            written = tokeniser.write([chunk for _, chunk, _ in batch])
            for ids, (split, _, ends) in zip(written, batch, strict=True):
                parts[split].append(ids)
                length += len(ids)
                if ends and length:
                    sizes[split].append(length)
                    length = 0
            for split, part in parts.items():
                if part:
                    np.concatenate(part).astype(dtype).tofile(files[split])
    return sizes


def _batches(division: Division, strict: bool) -> Iterator[list[tuple[Split, str, bool]]]:
    """(split, chunk, whether its document ends with it) for all chunks, some at a time."""
    batch: list[tuple[Split, str, bool]] = []
    held = 0
    for split, document in division:
        previous = None
        for chunk in chunks(document, strict):
            if previous is not None:
                batch.append((split, previous, False))
            previous = chunk
            held += len(chunk)
            if held >= _AT_ONCE:
                yield batch
                batch, held = [], 0
        if previous is not None:
            batch.append((split, previous, True))
    if batch:
        yield batch


def _three(values: Sequence[int]) -> tuple[int, int, int]:
    train, val, test = values
    return train, val, test
