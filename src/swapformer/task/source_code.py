"""Tasks on Python source: the next token with tags of the syntax tree, and the role of each token."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from swapformer.interface import MAIN, Interface, Readout
from swapformer.task.annotations import Arrays, annotate_corpus
from swapformer.task.base import IGNORE, Batch, Split
from swapformer.task.code_tags import LINK_KEYS, LINK_QUERIES, MOST_NUMBERS, TAGS, tags_of_file
from swapformer.task.measures import CLASS_DIRECTIONS
from swapformer.task.python_syntax import ROLES, ParsedSource, token_roles
from swapformer.task.source import Source
from swapformer.task.text import NextToken
from swapformer.task.text_task import BlockTask
from swapformer.task.tokeniser.base import TokenSpans

_SMALL = ("definition", "level")
"""Tags that are counts; the others are numbers, of which no two files share one."""
_TAG_TYPES = {name: np.uint8 if name in _SMALL else np.uint16 for name in TAGS}
_NO_ROLE = 255


class SourceCode(NextToken):
    """Predict each next token of Python source, as Text does.

    Tags of every token, as far as the text up to it tells: `block`, the innermost compound statement, with its `parent`
    and `grandparent`, and `level`, how many are open; `scope`, the innermost function or class; no two files share a
    number. `definition`: 1 where the name of a function or class is defined. `name` and `callee` of a use are `defined`
    and `signature` of the definition that it is linked to; 0 and −1 link to nothing. See swapformer.task.code_tags.
    UsageError: a file that is no Python source, with its line.
    """

    tags = TAGS

    def __init__(self, *, source: Source, **settings: Any) -> None:
        super().__init__(source=source, **settings)
        self.annotations = annotate_corpus(source, self.tokeniser, self.corpus, self.shares, _TAG_TYPES, tags_of_file)

    def fingerprint(self) -> str:
        """SHA-256 of the corpus and of the tags of its tokens."""
        return self.annotations.fingerprint

    def batch(self, split: Split, starts: Tensor, length: int, generator: torch.Generator | None = None) -> Batch:
        batch = super().batch(split, starts, length)
        own = MOST_NUMBERS * self.documents(split, starts, length)
        tags = {name: self.annotations.windows(split, name, starts, length) for name in TAGS}
        for name in set(TAGS).difference(_SMALL):
            none = {**dict.fromkeys(LINK_QUERIES, 0), **dict.fromkeys(LINK_KEYS, -1)}.get(name)
            numbered = tags[name] + own
            tags[name] = numbered if none is None else torch.where(tags[name] == 0, none, numbered)
        return replace(batch, tags=tags)


class Roles(BlockTask):
    """Classify each token of Python source by its role (swapformer.task.python_syntax.ROLES).

    A role is keyword, operator, string …, and of a name whether it is called, defined, imported, a parameter, an
    attribute …. `source` holds Python files. Python's tokens are not the tokeniser's: the answer is asked for where a
    token of Python begins, at the tokeniser's token that holds its first character (where several begin in one, for the
    first of them), and nowhere else. `segments`: as in Masked.
    UsageError: a file that is no Python source, with its line.
    """

    directions = CLASS_DIRECTIONS
    predicts_next = False
    independent = True
    classes = ROLES

    def __init__(self, *, source: Source, segments: bool = False, **settings: Any) -> None:
        self.segments = 2 if segments else 0
        self.tags = ("segment",) if self.segments else ()
        super().__init__(source=source, **settings)
        self.annotations = annotate_corpus(
            source, self.tokeniser, self.corpus, self.shares, {"role": np.uint8}, roles_of_file
        )

    @property
    def interface(self) -> Interface:
        readout = Readout(len(ROLES), "classes", "position")
        return Interface(self.vocab_size, segments=self.segments, readouts={MAIN: readout})

    def batch(self, split: Split, starts: Tensor, length: int, generator: torch.Generator) -> Batch:
        labels = self.annotations.windows(split, "role", starts, length)
        return Batch(
            inputs=self.windows(split, starts, length),
            targets=labels.masked_fill(labels == _NO_ROLE, IGNORE),
            tags={name: torch.zeros_like(labels) for name in self.tags},
        )

    def fingerprint(self) -> str:
        """SHA-256 of the corpus and of the roles of its tokens."""
        return self.annotations.fingerprint


def roles_of_file(parsed: ParsedSource, written: TokenSpans) -> Arrays:
    """The number of the role at each token of a file; 255 where no token of Python begins."""
    number = {name: index for index, name in enumerate(ROLES)}
    spans = token_roles(parsed)
    found = np.full(len(written.ids), _NO_ROLE, dtype=np.uint8)
    begins = np.array([span.start for span in spans], dtype=np.int64)
    tokens = np.searchsorted(written.ends, begins, side="right")
    # Backwards, so that the first of several in one token stays.
    for token, span in zip(tokens[::-1], spans[::-1], strict=True):
        if token < len(found) and written.starts[token] <= span.start:
            found[token] = number[span.label]
    return {"role": found}
