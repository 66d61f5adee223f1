"""Pieces of words, learned from the training text by the `tokenizers` library."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from functools import cached_property
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, SupportsIndex

import numpy as np

from swapformer.errors import UsageError
from swapformer.task.base import whole_number
from swapformer.task.tokeniser.base import Ids, Tokeniser, Written

if TYPE_CHECKING:
    from tokenizers import Tokenizer as Library


class Subword(Tokeniser):
    """What BPE and WordPiece share. The library knows no special tokens: no text is ever taken for one.

    `vocab_size`: tokens in all, special ones included.
    """

    def __init__(self, *, vocab_size: int, special: Sequence[str] = ()) -> None:
        super().__init__(special=special)
        self.vocab_size = whole_number("tokeniser.vocab_size", vocab_size, 1)

    def settings(self) -> dict[str, Any]:
        return {"vocab_size": self.vocab_size, "tokenizers": version("tokenizers")}

    @abstractmethod
    def train(self, texts: Iterable[str], size: int, min_count: int) -> Library:
        """The library's tokeniser with `size` tokens, or fewer where the texts have no more."""

    def require(self, least: int, why: str) -> None:
        """UsageError unless the vocabulary has at least `least` tokens."""
        if self.vocab_size < least:
            raise UsageError(
                f"task.tokeniser.vocab_size must be at least {least} ({why}), but is {self.vocab_size}; take more"
            )

    def trained(self, texts: Iterable[str], special: Sequence[str], min_count: int) -> tuple[Library, list[str]]:
        """The library's tokeniser and its tokens in the order of their ids."""
        library = self.train(texts, self.vocab_size - len(special), min_count)
        found = len(special) + library.get_vocab_size()
        if found < self.vocab_size:
            raise UsageError(
                f"task.tokeniser.vocab_size must be at most {found}, since the training text has no more pieces of "
                f"words, but is {self.vocab_size}; take fewer, or more text"
            )
        vocabulary = library.get_vocab()
        return library, sorted(vocabulary, key=vocabulary.__getitem__)

    @cached_property
    def _library(self) -> Library:
        from tokenizers import Tokenizer as Library  # here, since training on a corpus that is tokenised needs none

        return Library.from_str(self.learned.model)

    def write(self, texts: Sequence[str]) -> list[Ids]:
        special = self.learned.special
        found = self._library.encode_batch_fast(list(texts), add_special_tokens=False)
        return [np.array(one.ids, dtype=np.int64) + special for one in found]

    def write_with_places(self, text: str) -> Written:
        found = self._library.encode(text, add_special_tokens=False)
        places = np.array(found.offsets, dtype=np.int64).reshape(-1, 2)
        return Written(np.array(found.ids, dtype=np.int64) + self.learned.special, places[:, 0], places[:, 1])

    def read(self, ids: Iterable[SupportsIndex]) -> str:
        special = self.learned.special
        parts: list[str] = []
        own: list[int] = []
        for number in (index.__index__() for index in ids):
            if number >= special:
                own.append(number - special)
                continue
            parts += [self._library.decode(own), self.learned.tokens[number]]
            own = []
        return "".join([*parts, self._library.decode(own)])
