"""The division of documents into training, validation and test, and of a text into chunks."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence

from swapformer.errors import UsageError
from swapformer.task.base import Split
from swapformer.task.source import Document, Source

SPLITS: tuple[Split, ...] = ("train", "val", "test")
CHUNK = 1 << 13
"""Characters that are tokenised at a time."""


def split_of(key: str, fractions: Sequence[float]) -> Split:
    """The split of a document with this key: decided by a hash of it, whatever other documents there are."""
    share = int.from_bytes(hashlib.sha256(key.encode()).digest()[:8], "big") / 2**64
    if share < fractions[0]:
        return "train"
    return "val" if share < fractions[0] + fractions[1] or fractions[2] == 0 else "test"


def split_of_document(document: Document, fractions: Sequence[float]) -> Split:
    """The split that a document's source says, or else that of its key."""
    return document.split or split_of(document.key, fractions)


class Division:
    """The documents of a source with their splits; it can be gone through any number of times.

    Documents go to a split whole, by a hash of what they are or as their source says. A single document is cut in
    three, the training's characters int(share · n), as nanoGPT does. `characters`: how many each split has.
    UsageError: there is no text, or a split without a document.
    """

    def __init__(self, source: Source, fractions: Sequence[float], strict: bool) -> None:
        self._source = source
        self._splits = bytearray()
        lengths, own = [], False
        self.characters: dict[Split, int] = dict.fromkeys(SPLITS, 0)
        for document in source.documents():
            split = split_of_document(document, fractions)
            own = document.split is not None
            self._splits.append(SPLITS.index(split))
            lengths.append(sum(map(len, document.pieces(strict))))
            self.characters[split] += lengths[-1]
        if not any(lengths):
            raise UsageError(
                f"there must be text in {source.description}, but it is empty; give a file with text in it"
            )
        self._cuts: list[int] = []
        if len(lengths) == 1 and not own:
            whole = lengths[0]
            first, second = int(fractions[0] * whole), int((fractions[0] + fractions[1]) * whole)
            self._cuts = [0, first, whole if fractions[2] == 0 else second, whole]
            for index, split in enumerate(SPLITS):
                self.characters[split] = self._cuts[index + 1] - self._cuts[index]
            return
        for split, fraction in zip(SPLITS, fractions, strict=True):
            if fraction > 0 and not self.characters[split]:
                raise UsageError(
                    f"the {split} split that {source.description} has of its own must have text, but has none"
                    if own
                    else f"the {split} split of {source.description} must have text, but a hash sends none of its "
                    f"{len(lengths)} documents there; give more documents, another task.split, or a single text, which "
                    "is cut in three"
                )

    def __iter__(self) -> Iterator[tuple[Split, Document]]:
        if self._cuts:
            document = next(self._source.documents())
            for index, split in enumerate(SPLITS):
                yield split, TextSlice(document, self._cuts[index], self._cuts[index + 1])
            return
        for index, document in zip(self._splits, self._source.documents(), strict=True):
            yield SPLITS[index], document


class TextSlice(Document):
    """The characters `start` … `stop` − 1 of a document."""

    def __init__(self, document: Document, start: int, stop: int) -> None:
        self.name, self._document, self._start, self._stop = document.name, document, start, stop

    @property
    def key(self) -> str:
        return f"{self._document.key} {self._start} {self._stop}"

    def pieces(self, strict: bool = True) -> Iterator[str]:
        position = 0
        for piece in self._document.pieces(strict):
            if position >= self._stop:
                return
            part = piece[max(0, self._start - position) : self._stop - position]
            position += len(piece)
            if part:
                yield part


def chunks(document: Document, strict: bool) -> Iterator[str]:
    """A document's text in parts of at most CHUNK characters, which have the tokens that the whole has.

    They are cut before white space that follows none, where our own tokenisers begin again, or anywhere in a text that
    has no such white space for so long. A `tokenizer.json` that marks the start of a text (Metaspace,
    `add_prefix_space`), or whose words hold white space, may have a token more or less at each cut.
    """
    rest = ""
    for piece in document.pieces(strict):
        rest += piece
        start = 0
        while len(rest) - start > CHUNK:
            cut = _cut(rest, start, start + CHUNK)
            yield rest[start:cut]
            start = cut
        rest = rest[start:]
    if rest:
        yield rest


def _cut(text: str, start: int, end: int) -> int:
    position = end + 1
    while (position := max(text.rfind(" ", start + 1, position), text.rfind("\n", start + 1, position))) > 0:
        if not text[position - 1].isspace():
            return position
    return end
