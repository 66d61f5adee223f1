"""Tasks on small texts, as the tests make them."""

from __future__ import annotations

import tokenize
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from swapformer.task import Text
from swapformer.task.source import Files, Library
from swapformer.task.tokeniser import Characters

FILES = ("column", "joined")


def text(path: str | Path | None = None, **settings: Any) -> Text:
    """Characters of a file, or of the library, unless `settings` say otherwise."""
    own = {name: settings.pop(name) for name in FILES if name in settings}
    source = Library() if path is None else Files(path=str(path), **own)
    return Text(**{"source": source, "tokeniser": Characters()} | settings)


def whole_strings(tokens: Iterable[tokenize.TokenInfo]) -> Iterator[tokenize.TokenInfo]:
    """Tokens of Python as before 3.12: a formatted string is one of them, and not its parts."""
    depth, first = 0, None
    for token in tokens:
        name = tokenize.tok_name[token.type]
        if name in ("FSTRING_START", "TSTRING_START"):
            first, depth = first if depth else token, depth + 1
        if first is None:
            yield token
        if name in ("FSTRING_END", "TSTRING_END"):
            depth -= 1
            if not depth and first is not None:
                yield tokenize.TokenInfo(tokenize.STRING, first.string, first.start, token.end, first.line)
                first = None
