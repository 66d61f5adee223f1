"""A tokeniser that another trial has learned."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from hashlib import sha256
from pathlib import Path
from typing import Any, Self, SupportsIndex

from swapformer.errors import UsageError
from swapformer.results.vocabulary import vocabulary_path
from swapformer.targets import find
from swapformer.task.tokeniser.base import Ids, LearnedTokens, Tokeniser, TokenSpans
from swapformer.yaml_reader import parse_foreign_json


class Trained(Tokeniser):
    """The tokeniser of a trial with all that it has learned, so that its symbols are those that a model was trained on.

    `path`: the trial's folder (the beginning of its name will do), or a file such as the one that lies in it.
    The file names a class, and may come from anyone: it is one of swapformer's or of a package that you allow
    (SWAPFORMER_PACKAGES), and nothing else is imported.
    UsageError: there is none, it is of another package, or it lacks a special token that the task needs.
    """

    ready = True

    def __init__(self, *, path: str) -> None:
        super().__init__()
        self.path = str(path)
        held = _read(_file(Path(self.path).expanduser()), self.path)
        self._known = LearnedTokens.from_json(held["learned"])
        self._tokeniser = _class(held["tokeniser"], self.path)(**held["settings"])
        known = self._tokeniser.with_learned(self._known)
        self.learns_from, self.lossless, self.any_bytes = known.learns_from, known.lossless, known.any_bytes

    def settings(self) -> dict[str, Any]:
        return {"learned": sha256(json.dumps(asdict(self._known)).encode()).hexdigest()}

    def all_special(self, needed: Sequence[str]) -> tuple[str, ...]:
        known = self._known.tokens[: self._known.special]
        if missing := [name for name in needed if name not in known]:
            raise UsageError(
                f"the tokeniser of {self.path!r} must have the special tokens {', '.join(needed)}, which the task "
                f"needs, but it has no {', '.join(missing)}; train it with task.tokeniser.special="
                f"[{','.join(repr(name) for name in missing)}]"
            )
        return known

    def learn(self, texts: Iterable[str], special: Sequence[str], min_count: int) -> LearnedTokens:
        return self._known

    def with_learned(self, learned: LearnedTokens) -> Self:
        known = super().with_learned(learned)
        known._tokeniser = self._tokeniser.with_learned(learned)
        return known

    @property
    def unit(self) -> str:
        return self._tokeniser.unit

    def to_json(self) -> str:
        return self._tokeniser.to_json()

    def write(self, texts: Sequence[str]) -> list[Ids]:
        return self._tokeniser.write(texts)

    def write_with_spans(self, text: str) -> TokenSpans:
        return self._tokeniser.write_with_spans(text)

    def read(self, ids: Iterable[SupportsIndex]) -> str:
        return self._tokeniser.read(ids)


def _file(path: Path) -> Path:
    folders = [path] if path.is_dir() else [one for one in path.parent.glob(f"{path.name}*") if one.is_dir()]
    return vocabulary_path(folders[0]) if len(folders) == 1 and not path.is_file() else path


def _read(file: Path, path: str) -> dict[str, Any]:
    try:
        held = parse_foreign_json(file.read_text(encoding="utf-8"))
        return {name: held[name] for name in ("tokeniser", "settings", "learned")}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UsageError(
            "task.tokeniser.path must be the folder of a trial whose task is written by a tokeniser, but no such trial "
            f"is in {path!r} ({type(error).__name__}); name one, such as runs/trials/0123456789abcdef"
        ) from None


def _class(name: object, path: str) -> type[Tokeniser]:
    """The class that a file names: swapformer's own, or of a package that is allowed."""
    try:
        found = find(str(name))
    except UsageError as error:
        raise UsageError(f"the tokeniser of {path!r} must be of a class that can be had: {error}") from None
    if not (isinstance(found, type) and issubclass(found, Tokeniser)):
        raise UsageError(
            f"the tokeniser of {path!r} must be a Tokeniser, but {name!r} is not one; choose another trial"
        )
    return found
