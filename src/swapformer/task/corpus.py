"""Text as an array of token ids: how it is split, what a token is, and what identifies the result."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from swapformer.errors import UsageError
from swapformer.task.base import Split
from swapformer.task.sources import Source

Unit = Literal["characters", "bytes"]
SPLITS: tuple[Split, ...] = ("train", "val", "test")
UNKNOWN = "<unk>"
_CHUNK = 1 << 22


@dataclass(frozen=True, eq=False)
class Corpus:
    """Token ids, training first, then validation, then test; `lengths` says how many each of them has.

    `vocabulary`: the characters in the order of their ids (None: ids are bytes); `unknown`: whether one more id stands
    for every character outside it. `fingerprint`: SHA-256 of all of this, in hex.
    """

    ids: NDArray[Any]
    lengths: tuple[int, int, int]
    vocabulary: str | None
    unknown: bool
    fingerprint: str

    @classmethod
    def of(cls, ids: NDArray[Any], lengths: Sequence[int], vocabulary: str | None, unknown: bool) -> Corpus:
        """The corpus with its fingerprint worked out."""
        header = json.dumps([ids.dtype.str, list(lengths), vocabulary, unknown]).encode()
        digest = hashlib.sha256(header + b"\0")
        digest.update(ids.data)
        train, val, test = lengths
        return cls(ids, (train, val, test), vocabulary, unknown, digest.hexdigest())

    def split(self, name: Split) -> NDArray[Any]:
        """The token ids of a split [n]: a view."""
        ends = np.cumsum(self.lengths)
        index = SPLITS.index(name)
        return self.ids[ends[index] - self.lengths[index] : ends[index]]


def build(source: Source, unit: Unit, fractions: Sequence[float], min_count: int) -> Corpus:
    """Read, split and tokenise the files.

    A character becomes a symbol of its own where it occurs at least `min_count` times in the whole text.
    UsageError: a file cannot be read or is no UTF-8, or all are empty.
    """
    texts: dict[Split, list[bytes]] = {name: [] for name in SPLITS}
    for name, path in source.files:
        texts[split_of_file(name, fractions) if source.whole_files else "train"].append(_read(path, unit))
    parts = [b"".join(texts[name]) for name in SPLITS]
    if not any(parts):
        raise UsageError(f"task.path must hold text, but {source.description} is empty; give a file with text in it")
    vocabulary, unknown = None, False
    if unit == "bytes":
        ids = np.frombuffer(b"".join(parts), dtype=np.uint8)
        lengths = [len(part) for part in parts]
    else:
        decoded = [part.decode() for part in parts]
        lengths = [len(text) for text in decoded]
        ids, vocabulary, unknown = _tokenise("".join(decoded), min_count)
    if not source.whole_files:
        first, second = int(fractions[0] * len(ids)), int((fractions[0] + fractions[1]) * len(ids))
        second = len(ids) if fractions[2] == 0 else second
        lengths = [first, second - first, len(ids) - second]
    return Corpus.of(ids, lengths, vocabulary, unknown)


def split_of_file(name: str, fractions: Sequence[float]) -> Split:
    """The split of a file that goes by `name`: decided by a hash of the name, whatever other files there are."""
    share = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big") / 2**64
    if share < fractions[0]:
        return "train"
    return "val" if share < fractions[0] + fractions[1] or fractions[2] == 0 else "test"


def _read(path: Path, unit: Unit) -> bytes:
    try:
        content = path.read_bytes()
        if unit == "characters":
            content.decode()
    except UnicodeDecodeError as error:
        raise UsageError(
            f"task.path must be UTF-8 text, but byte {error.start} of {str(path)!r} is "
            f"{error.object[error.start]:#04x} ({error.reason}); convert it, or read it with task.unit=bytes"
        ) from None
    except OSError as error:
        raise UsageError(f"task.path must be readable, but {str(path)!r} is not: {error.strerror}") from None
    return content


def _tokenise(text: str, min_count: int) -> tuple[NDArray[Any], str, bool]:
    """Token ids, the vocabulary in the order of code points, and whether some characters are unknown."""
    counts = np.zeros(0x110000, dtype=np.int64)
    for codes in _code_points(text):
        counts += np.bincount(codes, minlength=len(counts))
    known = np.flatnonzero(counts >= min_count)
    unknown = int(counts[known].sum()) < len(text)
    if len(known) == 0:
        raise UsageError(
            f"task.min_count must leave some characters, but none occurs {min_count} times; take a smaller one"
        )
    table = np.full(len(counts), len(known), dtype=np.min_scalar_type(len(known)))
    table[known] = np.arange(len(known))
    ids = np.concatenate([table[codes] for codes in _code_points(text)])
    return ids, "".join(map(chr, known)), unknown


def _code_points(text: str) -> Iterator[NDArray[np.uint32]]:
    for start in range(0, len(text), _CHUNK):
        yield np.frombuffer(text[start : start + _CHUNK].encode("utf-32-le"), dtype=np.uint32)
