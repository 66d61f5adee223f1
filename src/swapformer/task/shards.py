"""A source of token ids that another program has written: files that are mapped into memory and never copied."""

from __future__ import annotations

import glob
import hashlib
import json
import mmap
import tokenize
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NoReturn

import numpy as np
from numpy.typing import NDArray

from swapformer.errors import UsageError
from swapformer.ranges import Natural
from swapformer.task.base import Split
from swapformer.task.corpus import Corpus
from swapformer.task.source.base import Document, Source, Stamp, stamp_of_files
from swapformer.task.source.files import found_files, require_apart
from swapformer.task.tokeniser import Tokeniser

_HEADER = 256
"""Numbers of int32 at the start of llm.c's files: what they are, their version, and how many ids follow."""
_KINDS = {20240520: "<u2", 20240801: "<u4"}
"""The type of the ids by the first number of llm.c's header (GPT-2's tokens, and Llama 3's)."""
_AT_ONCE = 1 << 22
"""Ids that are searched at a time."""
_FEW = 64
"""Ids of which every second may be 0 by chance, as in a stream of two symbols."""
_SAMPLE, _SAMPLES = 1 << 14, 256
"""A file with more ids than their product is known by this many samples of so many ids, evenly spread."""


class Shards(Source):
    """The ids of training, validation and test, each a file or several in the order of their names.

    `path`: a folder. `train`, `val`, `test`: names or patterns of files in it (null: no test). `end`: the id that ends
    a document and belongs to it; null: every file is one document. `fingerprint`: files are known by their sizes and by
    `samples` of them, or by `full`, all of their ids, which are read once for it.

    A file is a NumPy array of whole numbers with one axis (.npy), of llm.c (a header of 256 int32, then uint16 or
    uint32), or without a header uint16, as nanoGPT writes them. UsageError: no such files, one that is damaged, empty,
    or both in training and elsewhere, files of several types.
    """

    def __init__(
        self, *, path: str, train: str = "*train*", val: str = "*val*", test: str | None = None,
        end: Natural | None = None, fingerprint: Literal["samples", "full"] = "samples",
    ) -> None:  # fmt: skip
        self.description = repr(path)
        self.end, self.full = end, fingerprint == "full"
        self.files: dict[str, tuple[Path, ...]] = {}
        for split, pattern in (("train", train), ("val", val), ("test", test)):
            at = None if pattern is None else str(Path(glob.escape(str(Path(path).expanduser()))) / pattern)
            self.files[split] = () if at is None else found_files(f"task.source.{split}", at)
        require_apart(self.files)

    @property
    def own_shares(self) -> tuple[float, float, float]:
        return 1.0, 1.0, float(bool(self.files["test"]))

    def documents(self, columns: Sequence[str] = ()) -> Iterator[Document]:
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise UsageError(
            f"{self.description} has token ids and no text, which only task=text can learn from; take task=text, or a "
            "source of texts"
        )

    def stamp(self) -> Stamp:
        facts, changed = stamp_of_files(file for files in self.files.values() for file in files)
        return Stamp([facts, self.end, self.full], changed)

    def tokenised(self, tokeniser: Tokeniser, special: Sequence[str]) -> Corpus:
        if special:
            self._refuse()
        if not tokeniser.ready:
            raise UsageError(
                f"{self.description} has token ids and no text that a tokeniser could learn from; take what wrote "
                "them: task/tokeniser=huggingface, trained or numbers"
            )
        learned = tokeniser.learn((), (), self.min_count)
        size = len(learned.tokens)
        if self.end is not None and self.end >= size:
            raise UsageError(
                f"task.source.end must be below the {size} ids of task/tokeniser, but is {self.end}; take the id that "
                "ends a document"
            )
        parts: dict[str, _Joined] = {
            split: _Joined([_mapped(file, size) for file in files], size) for split, files in self.files.items()
        }
        facts = {split: [_digest(one, self.full) for one in ids.parts] for split, ids in parts.items()}
        content = json.dumps([facts, self.end, tokeniser.with_learned(learned).unit])
        return _ShardCorpus(
            ids=np.empty(0, dtype=np.uint16),
            offsets=np.zeros(1, dtype=np.int64),
            lengths=(len(parts["train"]), len(parts["val"]), len(parts["test"])),
            documents=(0, 0, 0),
            learned=learned,
            fingerprint=hashlib.sha256(content.encode()).hexdigest(),
            release=lambda: _release(parts),
            parts=parts,
            end=self.end,
        )


@dataclass(frozen=True, eq=False)
class _ShardCorpus(Corpus):
    """The splits as they lie in their files, `parts`; the arrays of a corpus that was tokenised here are empty."""

    parts: Mapping[str, _Joined]
    end: int | None

    @property
    def nbytes(self) -> int:
        return sum(one.nbytes for ids in self.parts.values() for one in ids.parts)

    def split(self, name: Split) -> _Joined:
        return self.parts[name]

    def begins(self, name: Split) -> NDArray[np.int64]:
        return self.parts[name].documents(self.end, name)


def _release(parts: Mapping[str, _Joined]) -> None:
    for ids in parts.values():
        ids.release()


class _Joined:
    """Mapped arrays of ids one after another, read as one."""

    def __init__(self, parts: Sequence[np.memmap[Any, Any]], size: int) -> None:
        self.parts, self._size = parts, size
        self._starts = np.cumsum([0, *map(len, parts)])
        kinds = {part.dtype: part.filename for part in parts}
        if len(kinds) > 1:
            (one, first), (two, second) = list(kinds.items())[:2]
            raise UsageError(
                f"the files of a split must hold numbers of one type, but {str(first)!r} has {one} and {str(second)!r} "
                f"{two}; write them alike"
            )

    def __len__(self) -> int:
        return int(self._starts[-1])

    def __getitem__(self, at: slice | NDArray[np.int64]) -> NDArray[np.int64]:
        """The ids of a range of places, or at places of any shape. UsageError: one is not in the vocabulary."""
        if isinstance(at, slice):
            return self[np.arange(*at.indices(len(self)))]
        found = np.empty(at.shape, dtype=np.int64)
        owner = np.searchsorted(self._starts, at, side="right") - 1
        for number in np.unique(owner):
            here = owner == number
            part = self.parts[number]
            found[here] = part[at[here] - self._starts[number]]
            _require_known(part, found[here], self._size)
        return found

    def documents(self, end: int | None, split: Split) -> NDArray[np.int64]:
        """The starts of documents, and the end of the last one. UsageError: no document ends in training."""
        if end is None:
            return self._starts
        for part in self.parts:
            _advise(part, "MADV_SEQUENTIAL")
        ends = [
            self._starts[number] + start + 1 + np.flatnonzero(part[start : start + _AT_ONCE] == end)
            for number, part in enumerate(self.parts)
            for start in range(0, len(part), _AT_ONCE)
        ]
        for part in self.parts:
            _advise(part, "MADV_DONTNEED", "MADV_RANDOM")
        if split == "train" and not any(map(len, ends)):
            raise UsageError(
                f"task.source.end must occur in training, but no id there is {end}; give the one that ends a text"
            )
        return np.unique(np.concatenate([[0], *ends, [len(self)]])).astype(np.int64)

    def release(self) -> None:
        """Give back the memory of what has been read."""
        for part in self.parts:
            _advise(part, "MADV_DONTNEED")


def _advise(part: np.memmap[Any, Any], *advice: str) -> None:
    """Tell the system how a mapping is used, in the words of madvise, where it has them."""
    held: Any = part.base  # NumPy's mapping
    while isinstance(held, np.ndarray):
        held = held.base
    for each in advice:
        if hasattr(mmap, each):
            held.madvise(getattr(mmap, each))


def _mapped(file: Path, size: int) -> np.memmap[Any, Any]:
    """The ids of a file for a vocabulary of a size. UsageError: it holds something else."""
    if file.suffix not in (".npy", ".bin"):
        raise UsageError(
            f"token ids must be in files that end in .npy or .bin, but {str(file)!r} does not; name those that do, "
            "such as task.source.train='*train*.bin', or take task/source=files for texts"
        )
    try:
        return _npy(file, size) if file.suffix == ".npy" else _bin(file, size)
    except (OSError, ValueError, EOFError, SyntaxError, tokenize.TokenError) as error:
        raise UsageError(f"{str(file)!r} must hold token ids, but cannot be read: {error}") from None


def _npy(file: Path, vocabulary: int) -> np.memmap[Any, Any]:
    found = np.lib.format.open_memmap(file, mode="r")
    if found.ndim != 1 or found.dtype.kind not in "iu" or len(found) == 0:
        raise ValueError(f"it is an array {list(found.shape)} of {found.dtype}; write one axis of whole numbers")
    _require_room(found.dtype, vocabulary)
    return found


def _require_room(kind: np.dtype[Any], vocabulary: int) -> None:
    """Refuse ids that cannot hold the vocabulary: larger ones would have wrapped around when they were written."""
    held = np.iinfo(kind).max + 1
    if kind.itemsize < 4 and vocabulary > held:
        raise ValueError(f"its ids are {kind}, below {held}, but task/tokeniser has {vocabulary}; write it as uint32")


def _bin(file: Path, vocabulary: int) -> np.memmap[Any, Any]:
    size = file.stat().st_size
    header = np.fromfile(file, dtype="<i4", count=_HEADER)
    if len(header) == _HEADER and (kind := _KINDS.get(int(header[0]))) is not None:
        there, count = (size - 4 * _HEADER) // np.dtype(kind).itemsize, int(header[2])
        if count != there or count == 0:
            raise ValueError(f"its header says {count} ids, but there are {there}; write it again")
        _require_room(np.dtype(kind), vocabulary)
        return np.memmap(file, dtype=kind, mode="r", offset=4 * _HEADER)
    if len(header) == _HEADER and int(header[2]) in ((size - 4 * _HEADER) // 2, (size - 4 * _HEADER) // 4):
        raise ValueError(
            f"its header looks like one of llm.c, but begins with {header[0]} in place of one of "
            f"{', '.join(map(str, _KINDS))}; write it again, or as .npy"
        )
    if size % 2 or size == 0:
        raise ValueError(f"it has {size} bytes, and ids of uint16 take an even number; write it again, or as .npy")
    if vocabulary > 1 << 16:
        raise ValueError(
            f"without llm.c's header its ids are uint16, below 65536, but task/tokeniser has {vocabulary}; write it as "
            ".npy, or with that header"
        )
    found = np.memmap(file, dtype="<u2", mode="r")
    first = np.asarray(found[: 2 * _SAMPLE])
    if len(first) > _FEW and not len(found) % 2 and first.any() and not first[1::2].any():
        raise ValueError(
            "without llm.c's header its ids are uint16, but every second one is 0, as in a file of uint32; write it as "
            ".npy, or with that header"
        )
    return found


def _digest(part: np.memmap[Any, Any], full: bool) -> list[Any]:
    """The number of ids, and SHA-256 of them: unless `full`, of samples where they are many."""
    found = hashlib.sha256()
    step = _SAMPLE if full else max(_SAMPLE, len(part) // _SAMPLES)
    with Path(str(part.filename)).open("rb") as file:
        for start in [*range(0, len(part), step), max(0, len(part) - _SAMPLE)]:
            file.seek(part.offset + start * part.dtype.itemsize)
            found.update(np.fromfile(file, part.dtype, _SAMPLE).astype(np.int64).tobytes())
    _advise(part, "MADV_RANDOM")
    return [len(part), found.hexdigest()]


def _require_known(part: np.memmap[Any, Any], ids: NDArray[np.int64], size: int) -> None:
    if len(ids) and not (ids.min() >= 0 and ids.max() < size):
        wrong = int(ids.max() if ids.max() >= size else ids.min())
        raise UsageError(
            f"token ids must be below the {size} of task/tokeniser, but {str(part.filename)!r} has {wrong}; take the "
            "tokeniser that wrote it"
        )
