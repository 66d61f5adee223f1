"""Tokenisers that need no training: characters and bytes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any, SupportsIndex

import numpy as np
from numpy.typing import NDArray

from swapformer.errors import UsageError
from swapformer.ranges import Count
from swapformer.task.tokeniser.base import Ids, LearnedTokens, Tokeniser, TokenSpans

UNKNOWN = "<unk>"
_CODE_POINTS = 0x110000
_AT_ONCE = 1 << 18


class Characters(Tokeniser):
    """Each character is a token, numbered in the order of code points.

    `min_count`: characters that occur less often in the whole text become one <unk> (null: 1 for texts of your own, 100
    for the library). An <unk> counts as one byte, so that bits per byte compare with those of
    no other tokeniser.
    UsageError: no character occurs often enough.
    """

    learns_from = "everything"

    def __init__(self, *, min_count: Count | None = None, special: Sequence[str] = ()) -> None:
        super().__init__(special=special)
        self.min_count = min_count

    def settings(self) -> dict[str, Any]:
        return {"min_count": self.min_count}

    def learn(self, texts: Iterable[str], special: Sequence[str], min_count: int) -> LearnedTokens:
        least = self.min_count or min_count
        counts = character_counts(texts)
        known = np.flatnonzero(counts >= least)
        if len(known) == 0:
            raise UsageError(
                f"task.tokeniser.min_count must leave some characters, but none occurs {least} times; take less"
            )
        unknown = int(counts[known].sum()) < int(counts.sum())
        characters = [chr(code) for code in known]
        return LearnedTokens(
            tokens=(*special, *characters, *([UNKNOWN] if unknown else [])),
            sizes=(*[0] * len(special), *(len(one.encode()) for one in characters), *([1] if unknown else [])),
            special=len(special),
            unknown=len(special) + len(known) if unknown else None,
        )

    @property
    def unit(self) -> str:
        """A character; if some characters have no token, the unit names them."""
        return "character" if self.learned.unknown is None else super().unit

    @cached_property
    def _table(self) -> NDArray[Any]:
        """The id of each code point; the number of tokens for those that have none."""
        learned = self.learned
        own = slice(learned.special, learned.unknown)
        nothing = len(learned.tokens) if learned.unknown is None else learned.unknown
        table = np.full(_CODE_POINTS, nothing, dtype=np.min_scalar_type(len(learned.tokens)))
        known = [ord(token) for token in learned.tokens[own]]
        table[known] = np.arange(len(known)) + learned.special
        return table

    def write(self, texts: Sequence[str]) -> list[Ids]:
        return [self._write(text) for text in texts]

    def _write(self, text: str) -> Ids:
        ids = self._table[code_points(text)]
        if self.learned.unknown is None and len(ids) and int(ids.max()) == len(self.learned.tokens):
            missing = text[int((ids == len(self.learned.tokens)).argmax())]
            raise UsageError(f"every character must be one that the task knows, but {missing!r} is not; remove it")
        return ids

    def write_with_spans(self, text: str) -> TokenSpans:
        starts = np.arange(len(text))
        return TokenSpans(self._write(text), starts, starts + 1)

    def read(self, ids: Iterable[SupportsIndex]) -> str:
        return "".join(self.learned.tokens[index] for index in ids)


class Bytes(Tokeniser):
    """Each byte of the text's UTF-8 is a token, numbered by its value; bytes that are no UTF-8 are read as well."""

    any_bytes = True

    @property
    def unit(self) -> str:
        """A byte."""
        return "byte"

    def settings(self) -> dict[str, Any]:
        return {}

    def learn(self, texts: Iterable[str], special: Sequence[str], min_count: int) -> LearnedTokens:
        return LearnedTokens(
            tokens=(*special, *map(chr, range(256))), sizes=(*[0] * len(special), *[1] * 256), special=len(special)
        )

    def write(self, texts: Sequence[str]) -> list[Ids]:
        return [self._write(text) for text in texts]

    def _write(self, text: str) -> Ids:
        values = np.frombuffer(text.encode(errors="surrogateescape"), dtype=np.uint8)
        return values.astype(np.uint16) + np.uint16(self.learned.special) if self.learned.special else values

    def write_with_spans(self, text: str) -> TokenSpans:
        sizes = np.array([len(one.encode(errors="surrogateescape")) for one in text], dtype=np.int64)
        starts = np.repeat(np.arange(len(text)), sizes)
        return TokenSpans(self._write(text), starts, starts + 1)

    def read(self, ids: Iterable[SupportsIndex]) -> str:
        """The text; bytes that are no UTF-8 show as U+FFFD."""
        special = self.learned.special
        numbers = [index.__index__() for index in ids]
        parts = (
            self.learned.tokens[number].encode() if number < special else bytes([number - special])
            for number in numbers
        )
        return b"".join(parts).decode(errors="replace")


def character_counts(texts: Iterable[str]) -> NDArray[np.int64]:
    """The count of each code point."""
    counts = np.zeros(_CODE_POINTS, dtype=np.int64)
    for text in _gathered(texts):
        found = np.bincount(code_points(text))
        counts[: len(found)] += found
    return counts


def _gathered(texts: Iterable[str]) -> Iterator[str]:
    """The same texts, short ones put together."""
    parts: list[str] = []
    held = 0
    for text in texts:
        parts.append(text)
        held += len(text)
        if held > _AT_ONCE:
            yield "".join(parts)
            parts, held = [], 0
    if held:
        yield "".join(parts)


def code_points(text: str) -> NDArray[np.uint32]:
    """The code points of a text's characters [n]."""
    return np.frombuffer(text.encode("utf-32-le"), dtype=np.uint32)
