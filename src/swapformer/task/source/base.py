"""The base of sources: documents in a fixed order, read piece by piece, and a stamp that changes when they may have."""

from __future__ import annotations

import codecs
import gzip
import hashlib
import os
import zlib
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, NamedTuple

from swapformer.errors import UsageError
from swapformer.ranges import Declared
from swapformer.task.base import Split

PIECE = 1 << 18
"""Bytes or characters of a document that are held at a time."""


class Document(ABC):
    """Base of documents: a text, the `name` that messages call it, and its `values` by column."""

    name: str
    values: Mapping[str, Any] = {}
    split: Split | None = None
    """The split that it belongs to whatever its key is, where its source says so."""

    @property
    @abstractmethod
    def key(self) -> str:
        """The part of a document that decides its split; the same on every machine."""

    @abstractmethod
    def pieces(self, strict: bool = True) -> Iterator[str]:
        """The text in order, PIECE by piece, again at each call.

        Bytes that are no UTF-8 are refused where `strict`, otherwise they stand as lone surrogates (PEP 383).
        """

    def text(self) -> str:
        """All of it."""
        return "".join(self.pieces())


class TextRow(Document):
    """A document whose text is in memory, such as a row of a table; `key` decides its split, or else its text."""

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
    """A document that is a file, unpacked where it is packed by gzip.

    Its split is decided by its content, or by `key` where that is given. Where `strict`, what is no text is refused.
    """

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
        read, begun = 0, False
        try:
            for piece in self._read():
                if strict:
                    require_text(self.name, piece, begins=read == 0)
                read += len(piece)
                text = decoder.decode(piece)
                if text and not begun:  # a byte order mark says how the file is written, and is no part of its text
                    text, begun = text.removeprefix("\ufeff"), True
                yield text
            yield decoder.decode(b"", final=True)
        except UnicodeDecodeError as error:
            raise UsageError(
                f"a text must be UTF-8, but byte {read - len(error.object) + error.start} of {self.name} is "
                f"{error.object[error.start]:#04x} ({error.reason}); if it is a text in another encoding, convert it "
                "(iconv -f LATIN1 -t UTF-8); otherwise remove it"
            ) from None

    def _read(self) -> Iterator[bytes]:
        with unpacked(self.path, "a text") as file:
            while piece := file.read(PIECE):
                yield piece


_GZIP = b"\x1f\x8b"
_UNPACK = "unpack it first, or pack it with gzip"
_TABLE = "let its name end in {} and say task.source.column=…"
_BINARY: dict[bytes, tuple[str, str]] = {
    b"PK\x03\x04": ("a zip archive", _UNPACK),
    b"BZh91AY&SY": ("packed by bzip2", _UNPACK),
    b"\xfd7zXZ\x00": ("packed by xz", _UNPACK),
    b"\x28\xb5\x2f\xfd": ("packed by zstd", _UNPACK),
    b"PAR1": ("a parquet table", _TABLE.format(".parquet")),
    b"ARROW1": ("an arrow table", _TABLE.format(".arrow")),
    b"\xff\xff\xff\xff": ("an arrow table", _TABLE.format(".arrow")),
    b"%PDF-": ("a PDF", "give its text"),
    b"\xff\xfe": ("UTF-16", "convert it (iconv -f UTF-16 -t UTF-8)"),
    b"\xfe\xff": ("UTF-16", "convert it (iconv -f UTF-16 -t UTF-8)"),
}
"""How files begin that are no text: what they are, and what to do with them."""


def require_text(name: str, piece: bytes, begins: bool) -> None:
    """UsageError if a piece of a file shows that it is binary: by how the file begins, or by a byte of zero."""
    found = next((known for start, known in _BINARY.items() if begins and piece.startswith(start)), None)
    if found is None and b"\0" in piece:
        found = ("binary", "remove it, such as by a pattern (task.source.path='folder/**/*.txt')")
    if found is not None:
        raise UsageError(f"a text must be text, but {name} is {found[0]}; {found[1]}")


@contextmanager
def unpacked(path: Path, what: str) -> Iterator[IO[bytes] | gzip.GzipFile]:
    """A file that is open for reading; what gzip has packed is unpacked, whatever the file's name.

    UsageError: `what` cannot be read, or is cut or damaged.
    """
    try:
        with path.open("rb") as file:
            packed = file.read(len(_GZIP)) == _GZIP
            file.seek(0)
            if packed:
                with gzip.GzipFile(fileobj=file) as inner:
                    yield inner
            else:
                yield file
    except (OSError, EOFError, zlib.error) as error:
        said = getattr(error, "strerror", None) or error
        raise UsageError(f"{what} must be readable, but {str(path)!r} is not: {said}") from None


class JoinedDocument(Document):
    """A document that consists of several, one after another."""

    def __init__(self, name: str, documents: Sequence[Document], split: Split | None = None) -> None:
        self.name, self._documents, self.split = name, documents, split

    @property
    def key(self) -> str:
        return hashlib.sha256("".join(document.key for document in self._documents).encode()).hexdigest()

    def pieces(self, strict: bool = True) -> Iterator[str]:
        for document in self._documents:
            yield from document.pieces(strict)


class Stamp(NamedTuple):
    """Identifies a source's content without reading it.

    `facts`: JSON, the same as long as nothing has changed. `changed`: nanoseconds since 1970 of the latest change.
    """

    facts: list[Any]
    changed: int


class Source(Declared, ABC):
    """Base of sources: documents in a fixed order. A task has one, chosen by `task/source`.

    `description`: what messages call it. `min_count`: how often a character must occur to be a symbol of its own, where
    the tokeniser does not say.
    """

    description: str
    min_count: int = 1

    @abstractmethod
    def documents(self, columns: Sequence[str] = ()) -> Iterator[Document]:
        """Every document in order, with the values of further `columns` where it is a row of a table.

        UsageError: what is there cannot be read, or a column is missing.
        """

    @abstractmethod
    def stamp(self) -> Stamp:
        """A fingerprint that changes when the documents may have; quick, and nothing heavy is imported for it."""

    @property
    def own_shares(self) -> tuple[float, float, float] | None:
        """Above 0 for each of training, validation and test that the source itself has; None: task.split cuts them."""
        return None

    def tokenised(self, tokeniser: Any, special: Sequence[str]) -> Any:
        """The Corpus where the source has ids and no text, else None. UsageError: the task needs `special` tokens."""
        return None


def stamp_of_files(files: Iterable[Path]) -> Stamp:
    """The paths, sizes and times of files."""
    stats = [(os.path.join(os.getcwd(), path), os.stat(path)) for path in files]
    facts = [[path, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns] for path, stat in stats]
    return Stamp(facts, max((max(stat.st_mtime_ns, stat.st_ctime_ns) for _, stat in stats), default=0))


def no_columns(document: str, columns: Sequence[str]) -> UsageError:
    """The error for columns asked of a text."""
    return UsageError(
        f"the column {columns[0]!r} must be in a table (JSON-lines, CSV, TSV, parquet, Hugging Face), but {document} "
        "is plain text; give a table"
    )


def require_columns(location: str, columns: Sequence[str], known: Collection[object]) -> None:
    """UsageError for a column that a table does not have, or has more than once."""
    for column in columns:
        if column not in known:
            there = ", ".join(map(str, known)) or "none"
            raise UsageError(
                f"{location} must have the column {column!r}, but its columns are {there}; name one of them"
            )
        if list(known).count(column) > 1:
            raise UsageError(f"{location} must have one column {column!r}, but has several; rename the others")
