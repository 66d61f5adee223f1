"""The base of tokenisers: their settings, and what they learn from a text, once, as plain data."""

from __future__ import annotations

import copy
import hashlib
import inspect
import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, Literal, NamedTuple, Self, SupportsIndex

import numpy as np
from numpy.typing import NDArray

from swapformer.errors import UsageError
from swapformer.ranges import Declared

Ids = NDArray[Any]

PAD, CLASSIFY, SEPARATE, MASK, END = "[PAD]", "[CLS]", "[SEP]", "[MASK]", "<eos>"
"""The special tokens that tasks ask for, in the order in which they are numbered."""

_ORDER = (PAD, CLASSIFY, SEPARATE, MASK, END)


@dataclass(frozen=True)
class LearnedTokens:
    """The tokens that a tokeniser has learned, and how to write with them.

    `tokens`: how each id is written: the special ones, then its own. `sizes`: UTF-8 bytes of text that each stands for.
    `special`: how many are special: ids 0 … special − 1, which no text is ever written with. `unknown`: the id of what
    has no token, if there is one. `model`: what else is needed to write a text, in the tokeniser's own words.
    """

    tokens: tuple[str, ...]
    sizes: tuple[int, ...]
    special: int
    unknown: int | None = None
    model: str = ""

    @classmethod
    def from_json(cls, plain: Mapping[str, Any]) -> Self:
        """The object that `asdict` described."""
        return cls(**{**plain, "tokens": tuple(plain["tokens"]), "sizes": tuple(plain["sizes"])})


class TokenSpans(NamedTuple):
    """A text's ids [n], and the characters of each: from `starts` [n] to `ends` [n]."""

    ids: Ids
    starts: NDArray[np.int64]
    ends: NDArray[np.int64]


class Tokeniser(Declared, ABC):
    """Base of tokenisers, which turn text into ids and back once they have learned.

    A tokeniser that can write is `tokeniser.with_learned(tokeniser.learn(texts, …))`.

    `special`: special tokens besides those that the task asks for, so that another task's tokens are the same.
    Facts: `learns_from`: which texts it may see; an alphabet is everything's, anything else the training's alone.
    `lossless`: whether every text can be read back. `any_bytes`: whether it writes bytes that are no UTF-8 too.
    `ready`: whether it is whole without any text to learn from.
    """

    learns_from: Literal["training", "everything"] = "training"
    lossless: bool = True
    any_bytes: bool = False
    ready: bool = False

    def __init__(self, *, special: Sequence[str] = ()) -> None:
        if not all(special) or len({*special}) < len(special):
            raise UsageError(
                f"task.tokeniser.special must be a list of different words such as ['{MASK}'], but is {special!r}"
            )
        self.special = tuple(special)
        self._learned: LearnedTokens | None = None

    @abstractmethod
    def settings(self) -> dict[str, Any]:
        """The settings and versions of libraries that its ids depend on, in addition to the text, as JSON."""

    @abstractmethod
    def learn(self, texts: Iterable[str], special: Sequence[str], min_count: int) -> LearnedTokens:
        """Learn from texts, in chunks that can be gone through more than once, with `special` tokens first.

        `min_count`: how often a character must occur to be a symbol of its own, where the settings do not say.
        UsageError: the vocabulary is too small for these texts, or they for it.
        """

    @abstractmethod
    def write(self, texts: Sequence[str]) -> list[Ids]:
        """The ids of each text."""

    @abstractmethod
    def write_with_spans(self, text: str) -> TokenSpans:
        """The ids of a text, and the characters of each."""

    @abstractmethod
    def read(self, ids: Iterable[SupportsIndex]) -> str:
        """The text of ids; special ones as they are written."""

    def with_learned(self, learned: LearnedTokens) -> Self:
        """The same tokeniser, with what was learned."""
        assert self._learned is None, "a tokeniser learns once"
        known = copy.copy(self)
        known._learned = learned
        return known

    @classmethod
    def qualified_name(cls) -> str:
        """The name that files give it, by this package rather than a module: files stay readable when code moves."""
        ours = __package__ is not None and cls.__module__.startswith(f"{__package__}.")
        return f"{__package__ if ours else cls.__module__}.{cls.__qualname__}"

    def to_json(self) -> str:
        """Class, settings and what was learned, from which task/tokeniser=trained makes the same tokeniser."""
        names = inspect.signature(type(self)).parameters
        held = {
            "tokeniser": self.qualified_name(),
            "settings": {name: getattr(self, name) for name in names},
            "learned": asdict(self.learned),
        }
        return json.dumps(held) + "\n"

    @property
    def unit(self) -> str:
        """The text per token: a hash of all that was learned, unless a class knows it by name."""
        return hashlib.sha256(json.dumps(asdict(self.learned)).encode()).hexdigest()

    @property
    def learned(self) -> LearnedTokens:
        """The learned state."""
        assert self._learned is not None, "a tokeniser writes nothing before it has learned"
        return self._learned

    @cached_property
    def ids(self) -> dict[str, int]:
        """The id of each special token by its name."""
        return {name: index for index, name in enumerate(self.learned.tokens[: self.learned.special])}

    def all_special(self, needed: Sequence[str]) -> tuple[str, ...]:
        """The special tokens that a task needs and those of the settings, numbered as in every other task."""
        names = dict.fromkeys([*needed, *self.special])
        return tuple(sorted(names, key=lambda name: _ORDER.index(name) if name in _ORDER else len(_ORDER)))
