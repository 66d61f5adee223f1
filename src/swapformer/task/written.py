"""What all tasks share whose inputs are written by a tokeniser."""

from __future__ import annotations

from collections.abc import Iterable
from typing import SupportsIndex

from swapformer.task.base import Task
from swapformer.task.tokeniser import Learned, Tokeniser


class WrittenTask(Task):
    """A task whose symbols are a tokeniser's; call `know` once, when the tokeniser has learned."""

    tokeniser: Tokeniser

    def know(self, tokeniser: Tokeniser, learned: Learned) -> None:
        """Write and read with `tokeniser`, which has learned this."""
        self.tokeniser = tokeniser.with_learned(learned)
        self.tokens = learned.tokens
        self.vocab_size = len(self.tokens)

    def vocabulary(self) -> str:
        return self.tokeniser.to_json()

    def encode(self, text: str) -> list[int]:
        """Token ids of a text. UsageError names a character that the tokeniser has no token for."""
        ids: list[int] = self.tokeniser.write([text])[0].tolist()
        return ids

    def decode(self, ids: Iterable[SupportsIndex]) -> str:
        """The text that token ids stand for; bytes that are no UTF-8 show as U+FFFD."""
        return self.tokeniser.read(ids)
