"""Tags of Python source for models that read it from left to right: each is known when its token has been read."""

from __future__ import annotations

import re
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from swapformer.errors import UsageError
from swapformer.task.annotations import Arrays
from swapformer.task.python_syntax import ParsedSource, source_lines
from swapformer.task.tokeniser.base import TokenSpans

Tags = dict[str, NDArray[np.int32]]

TAGS = ("block", "scope", "definition")
"""Names of the tags, all of which follow from the text up to and with a character.

`block`: the innermost compound statement (def, class, if, for, while, with, try, match) that is open; `scope`: the
innermost function or class. Both are numbered from 1 in the order in which they begin; 0 is what stands in none.
A statement opens when its keyword is complete, at the character behind it (`if` may become `iffy`); at the @ of a
decorator; a match, which may be a name, with its first case. It closes at the first character of a line that is not
within it; white space and comments in between still belong to it. It opens again when a keyword that goes on with it
is complete: else, elif, except, finally.
`definition`: 1 where the name of a function or class is defined.
"""

_DEFINITIONS = ("def", "class")
_OPENING = (*_DEFINITIONS, "async", "if", "for", "while", "with", "try")
_GOES_ON = ("elif", "else", "except", "finally")
_IGNORED = (tokenize.NL, tokenize.COMMENT, tokenize.ENDMARKER)
_SPACE = re.compile(r"\s")
MOST_BLOCKS = 1 << 16
"""Blocks of a file: two files' numbers never meet."""


def tags_of_file(parsed: ParsedSource, written: TokenSpans) -> Arrays:
    """The TAGS of the tokens of a file."""
    found = token_tags(parsed.text, syntax_tags(parsed.text), written.starts, written.ends)
    if found["block"].max(initial=0) >= MOST_BLOCKS:
        raise UsageError(f"a file must have fewer than {MOST_BLOCKS} blocks, but {parsed.name} has more; leave it out")
    return found


def syntax_tags(text: str) -> Tags:
    """The TAGS of every character [n] of Python source, or of the beginning of one: a beginning has the same tags."""
    definition = np.zeros(len(text), dtype=np.int32)
    reader = _Reader()
    for token in _tokens(text):
        reader.read(token)
        if reader.defines:
            definition[token.start : token.end] = 1
    at, block, scope = np.array(reader.changes, dtype=np.int32).T
    lasting = np.diff(at.clip(max=len(text)), append=len(text))
    return {"block": np.repeat(block, lasting), "scope": np.repeat(scope, lasting), "definition": definition}


class _Token(NamedTuple):
    """A token of Python: its kind as in `tokenize`, its word, and the characters from `start` to `end`."""

    kind: int
    word: str
    start: int
    end: int


def _tokens(text: str) -> Iterator[_Token]:
    """The tokens of Python, up to where the text breaks off."""
    lines, starts = source_lines(text)
    try:
        for kind, word, (line, column), (last, end), _ in tokenize.generate_tokens(iter([*lines, ""]).__next__):
            start = starts[line - 1] + column
            if kind == tokenize.ERRORTOKEN or start >= len(text):
                return
            yield _Token(kind, word, start, starts[last - 1] + end)
    except (tokenize.TokenError, SyntaxError):
        return


@dataclass
class _Statement:
    """A compound statement: the number of suites it stands in, its own numbers, whether decorators await their def."""

    depth: int
    block: int
    scope: int
    decorated: bool = False


class _Reader:
    """Follows the compound statements of Python token by token.

    `changes`: the characters from which another statement is the innermost, with its block and scope. `defines`:
    whether the last token was the name of a function or class.
    """

    def __init__(self) -> None:
        self.changes, self.defines = [(0, 0, 0)], False
        self._open: list[_Statement] = []
        self._blocks = self._scopes = self._depth = 0
        self._begins, self._first, self._before = True, "", ""

    def read(self, token: _Token) -> None:
        """Take note of the next token."""
        if token.kind in _IGNORED:
            return
        before, self._before = self._before, token.word
        self.defines = False
        if token.kind == tokenize.INDENT:
            self._depth += 1
            if self._first == "match":
                self._start(token.end, self._depth - 1)
        elif token.kind == tokenize.DEDENT:
            self._depth -= 1
        elif token.kind == tokenize.NEWLINE:
            self._begins = True
        elif self._begins:
            self._begins, self._first = False, token.word
            self._begin_line(token)
        elif before == self._first == "async" and token.word == "def":
            self._define(token.end, self._open[-1])
            self._first = "def"
        else:
            self.defines = before == self._first and before in _DEFINITIONS

    def _begin_line(self, token: _Token) -> None:
        """Close what the line is not within, and open what its first word begins or goes on with."""
        if not (self._open and self._open[-1].decorated):  # nothing but its def, or another decorator, may follow
            closed = [each for each in self._open if each.depth >= self._depth]
            if closed:
                del self._open[-len(closed) :]
                self._note(token.start)
            if token.word in _GOES_ON and closed and closed[0].depth == self._depth:
                self._open.append(closed[0])
                self._note(token.end)
            elif token.word == "@":
                self._start(token.start, self._depth)
                self._define(token.start, self._open[-1])
                self._open[-1].decorated = True
            elif token.word in _OPENING:
                self._start(token.end, self._depth)
        if token.word in _DEFINITIONS:
            self._define(token.end, self._open[-1])

    def _start(self, at: int, depth: int) -> None:
        self._blocks += 1
        self._open.append(_Statement(depth, self._blocks, self.changes[-1][2]))
        self._note(at)

    def _define(self, at: int, statement: _Statement) -> None:
        """Give a statement a scope of its own, unless its decorators did."""
        if not statement.decorated:
            self._scopes += 1
            statement.scope = self._scopes
        statement.decorated = False
        self._note(at)

    def _note(self, at: int) -> None:
        self.changes.append((at, self._open[-1].block, self._open[-1].scope) if self._open else (at, 0, 0))


def token_tags(text: str, tags: Tags, starts: NDArray[np.int64], ends: NDArray[np.int64]) -> Tags:
    """The tags of tokens [m] that stand for the characters from `starts` to `ends` of a text.

    A token is where its first character that is no white space is (its first, if all are), since tokens of words begin
    with the space before them; it is a definition if any of its characters is. A character that goes on in the next
    token is not known yet: a token without another one is where the character before it is.
    """
    if len(starts) == 0:
        return {name: np.zeros(0, dtype=np.int32) for name in tags}
    ends = np.minimum(ends, np.append(starts[1:], len(text)))
    solid = np.ones(len(text) + 1, dtype=bool)
    solid[[match.start() for match in _SPACE.finditer(text)]] = False
    following = np.where(solid, np.arange(len(solid)), len(text))
    following = np.minimum.accumulate(following[::-1])[::-1]
    characters = np.where(following[starts] < ends, following[starts], np.where(starts < ends, starts, starts - 1))
    found = {name: np.append(0, values)[characters + 1].astype(np.int32) for name, values in tags.items()}
    defined = np.cumsum(np.append(0, tags["definition"]))
    found["definition"] = (defined[np.maximum(starts, ends)] > defined[starts]).astype(np.int32)
    return found
