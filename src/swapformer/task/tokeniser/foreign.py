"""Tokenisers that another program has made: a tokenizer.json of Hugging Face, or nothing but numbers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, SupportsIndex

import numpy as np

from swapformer.errors import UsageError, quote
from swapformer.ranges import Several
from swapformer.task.tokeniser.base import Ids, LearnedTokens, Tokeniser, TokenSpans
from swapformer.task.tokeniser.subword import bytes_of_symbols, keeps_bytes, require_repeatable
from swapformer.yaml_reader import parse_foreign_json

if TYPE_CHECKING:
    from tokenizers import Tokenizer as Library


class _Foreign(Tokeniser):
    """Base of tokenisers that learn nothing and have no special tokens of swapformer's."""

    lossless, ready = False, True

    def all_special(self, needed: Sequence[str]) -> tuple[str, ...]:
        if needed:
            raise UsageError(
                f"the task needs the special tokens {', '.join(needed)}, which {type(self).__name__} does not have; "
                "take task=text, or another task/tokeniser"
            )
        return ()


class TokenizerJson(_Foreign):
    """A tokenizer.json, as it numbers its tokens. Special tokens in a text are written as the text that they are.

    `path`: the file, or the folder that it is in. Losses per byte are measured where its tokens are bytes (byte-level
    BPE with all 256 bytes and no normaliser, such as GPT-2's); others lose white space, or what they do not know.
    UsageError: there is no such file, the library cannot read it, or it writes a text differently each time.
    """

    def __init__(self, *, path: str) -> None:
        super().__init__()
        self.path = str(path)

    @cached_property
    def _known(self) -> LearnedTokens:
        """The content of the file; a trial that keeps it no longer needs the file."""
        file = Path(self.path).expanduser()
        file = file / "tokenizer.json" if file.is_dir() else file
        try:
            return _learned(file.read_text(encoding="utf-8"))
        except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
            raise UsageError(
                f"task.tokeniser.path must lead to a tokenizer.json of the library tokenizers, but {str(file)!r} "
                f"cannot be read as one: {' '.join(str(error).split())[:200]}"
            ) from None

    @property
    def lossless(self) -> bool:  # type: ignore[override]  # it depends on the file
        return keeps_bytes((self._learned or self._known).model)

    def settings(self) -> dict[str, Any]:
        return {"tokenizer": sha256(self._known.model.encode()).hexdigest(), "tokenizers": version("tokenizers")}

    def learn(self, texts: Iterable[str], special: Sequence[str], min_count: int) -> LearnedTokens:
        return self._known

    @cached_property
    def _library(self) -> Library:
        return _library(self.learned.model)

    def write(self, texts: Sequence[str]) -> list[Ids]:
        found = self._library.encode_batch_fast(list(texts), add_special_tokens=False)
        return [np.array(one.ids, dtype=np.int64) for one in found]

    def write_with_spans(self, text: str) -> TokenSpans:
        found = self._library.encode(text, add_special_tokens=False)
        spans = np.array(found.offsets, dtype=np.int64).reshape(-1, 2)
        return TokenSpans(np.array(found.ids, dtype=np.int64), spans[:, 0], spans[:, 1])

    def read(self, ids: Iterable[SupportsIndex]) -> str:
        return self._library.decode([index.__index__() for index in ids], skip_special_tokens=False)


def _library(text: str) -> Library:
    from tokenizers import Tokenizer as Library  # late: training on ids needs none

    try:
        found = Library.from_str(text)
    except Exception as error:  # the library raises bare exceptions
        raise ValueError(str(error)) from None
    require_repeatable(parse_foreign_json(text))
    found.encode_special_tokens = True
    found.no_truncation()
    found.no_padding()
    return found


def _learned(text: str) -> LearnedTokens:
    """The tokens by number, with unused numbers, and the bytes of each."""
    library, byte_of = _library(text), bytes_of_symbols() if keeps_bytes(text) else None
    pieces = {number: piece for piece, number in library.get_vocab(with_added_tokens=True).items()}
    added = library.get_added_tokens_decoder()
    written, sizes = [], []
    for number in range(max(pieces) + 1):
        piece = pieces.get(number, f"<unused{number}>")
        plain = number in pieces and number not in added
        if byte_of is not None and plain and not byte_of.keys() >= set(piece):
            raise ValueError(f"its token {piece!r} has characters that stand for no byte")
        spelled = bytes(map(byte_of.__getitem__, piece)) if byte_of is not None and plain else piece.encode()
        written.append(spelled.decode(errors="backslashreplace"))
        sizes.append(0 if number not in pieces or (number in added and added[number].special) else len(spelled))
    return LearnedTokens(tokens=(*written,), sizes=(*sizes,), special=0, model=text)


class Numbers(_Foreign):
    """Tokens of which only the numbers are known: 0 … `vocab_size` − 1. No loss per byte is measured."""

    def __init__(self, *, vocab_size: Several) -> None:
        super().__init__()
        self.vocab_size = vocab_size

    def settings(self) -> dict[str, Any]:
        return {"vocab_size": self.vocab_size}

    def learn(self, texts: Iterable[str], special: Sequence[str], min_count: int) -> LearnedTokens:
        if any(True for text in texts if text):
            raise UsageError(
                "task/tokeniser=numbers is for the ids of task/source=shards, but the source has text; take another "
                "tokeniser"
            )
        return LearnedTokens(tokens=(*map(str, range(self.vocab_size)),), sizes=(0,) * self.vocab_size, special=0)

    def write(self, texts: Sequence[str]) -> list[Ids]:
        return [self.write_with_spans(text).ids for text in texts]

    def write_with_spans(self, text: str) -> TokenSpans:
        words = text.split()
        if wrong := [word for word in words if not (word.isdecimal() and int(word) < self.vocab_size)]:
            raise UsageError(
                f"a text must be numbers below {self.vocab_size}, such as “17 4”, but has {quote(wrong[0])}"
            )
        sizes = np.array([len(word) for word in words], dtype=np.int64)
        ends = np.cumsum(sizes + 1) - 1
        return TokenSpans(np.array(words, dtype=np.int64), ends - sizes, ends)

    def read(self, ids: Iterable[SupportsIndex]) -> str:
        return " ".join(str(index.__index__()) for index in ids)
