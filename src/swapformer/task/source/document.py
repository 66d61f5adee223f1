"""A text of a source: a row of a table, a file, several as one; read piece by piece."""

from __future__ import annotations

import codecs
import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from swapformer.errors import UsageError

PIECE = 1 << 18
"""Bytes or characters of a document that are held at a time."""


class Document(ABC):
    """One text: what messages call it (`name`), and what was asked for besides (`values`, by column)."""

    name: str
    values: Mapping[str, Any]

    @property
    @abstractmethod
    def key(self) -> str:
        """What decides the document's split; the same on every machine."""

    @abstractmethod
    def pieces(self, strict: bool = True) -> Iterator[str]:
        """The text in order, PIECE by piece, anew at each call.

        Bytes that are no UTF-8 are refused where `strict`, otherwise they stand as lone surrogates (PEP 383).
        """

    def text(self) -> str:
        """All of it."""
        return "".join(self.pieces())


class Row(Document):
    """A text that is there already: a row of a table. Its split is decided by its text, or by `key` if it has one."""

    def __init__(self, name: str, text: str, values: Mapping[str, Any], key: str | None = None) -> None:
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise UsageError(
                f"{name} must be Unicode text, but its character {error.start} is {error.object[error.start]!r}, half "
                "of a surrogate pair; correct that row"
            ) from None
        self.name, self.values = name, values
        self._text, self._key = text, key

    @property
    def key(self) -> str:
        return hashlib.sha256(self._text.encode()).hexdigest() if self._key is None else self._key

    def pieces(self, strict: bool = True) -> Iterator[str]:
        return (self._text[start : start + PIECE] for start in range(0, len(self._text), PIECE))


class TextFile(Document):
    """A file. Its split is decided by what is in it, or by `key` where that is given."""

    values: Mapping[str, Any] = {}

    def __init__(self, path: Path, key: str | None = None) -> None:
        self.path, self._key = path, key
        self.name = repr(str(path))

    @property
    def key(self) -> str:
        if self._key is None:
            digest = hashlib.sha256()
            for piece in self._read():
                digest.update(piece)
            self._key = digest.hexdigest()
        return self._key

    def pieces(self, strict: bool = True) -> Iterator[str]:
        decoder = codecs.getincrementaldecoder("utf-8")("strict" if strict else "surrogateescape")
        read = 0
        try:
            for piece in self._read():
                read += len(piece)
                yield decoder.decode(piece)
            yield decoder.decode(b"", final=True)
        except UnicodeDecodeError as error:
            raise UsageError(
                f"a text must be UTF-8, but byte {read - len(error.object) + error.start} of {self.name} is "
                f"{error.object[error.start]:#04x} ({error.reason}); convert it, or read it with task/tokeniser=bytes"
            ) from None

    def _read(self) -> Iterator[bytes]:
        try:
            with self.path.open("rb") as file:
                while piece := file.read(PIECE):
                    yield piece
        except OSError as error:
            raise UsageError(f"a text must be readable, but {self.name} is not: {error.strerror}") from None


class Joined(Document):
    """Several documents as one, one after another."""

    values: Mapping[str, Any] = {}

    def __init__(self, name: str, documents: Sequence[Document]) -> None:
        self.name, self._documents = name, documents

    @property
    def key(self) -> str:
        return hashlib.sha256("".join(document.key for document in self._documents).encode()).hexdigest()

    def pieces(self, strict: bool = True) -> Iterator[str]:
        for document in self._documents:
            yield from document.pieces(strict)
