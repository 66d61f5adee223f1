"""Tasks on small texts, as the tests make them."""

from __future__ import annotations

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
