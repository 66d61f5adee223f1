"""Tags of Python source for models that read it from left to right: each is known when its token has been read."""

from __future__ import annotations

import re
import tokenize
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from swapformer.errors import UsageError
from swapformer.task.annotations import Arrays
from swapformer.task.python_syntax import ParsedSource, source_lines
from swapformer.task.tokeniser.base import TokenSpans

Tags = dict[str, NDArray[np.int32]]

TAGS = (
    *("block", "parent", "grandparent", "head", "level", "scope", "definition"),
    *("name", "defined", "callee", "signature"),
)
"""Names of the tags, all of which follow from the text up to and with a character.

`block`: the innermost compound statement (def, class, if, for, while, with, try, match) that is open; `scope`: the
innermost function or class. Both are numbered from 1 in the order in which they begin; 0 is what stands in none.
`parent`, `grandparent`: the block in which the block stands, and the one in which that stands. `head`: the block whose
first line this is; 0 in the lines below. `level`: how many compound statements are open.
A statement opens when its keyword is complete, at the character behind it (`if` may become `iffy`); at the @ of a
decorator; a match, which may be a name, with its first case. It closes at the first character of a line that is not
within it; white space and comments in between still belong to it. It opens again when a keyword that goes on with it
is complete: else, elif, except, finally.
`definition`: 1 where the name of a function or class is defined.

Uses of a name are linked to its definitions by numbers of the beginnings of defined names: after `def foo`, f, fo and
foo have one each, the same for every name that begins so. 0 is none.
`name`: of what has been read of a word, the character included, if a definition up to here begins so. `defined`: in the
name of a definition and right behind it, of what was read of the name before the character: what follows `fo` in a use
followed it there. `callee`: within the parentheses behind a defined name, of that name; `signature`: the same where
they belong to the definition itself.
"""

LINK_QUERIES, LINK_KEYS = ("name", "callee"), ("defined", "signature", "head")
"""The tags in which 0 is none: of what asks for a definition, and of what answers, or is the head of a block."""

_DEFINITIONS = ("def", "class")
_OPENING = (*_DEFINITIONS, "async", "if", "for", "while", "with", "try")
_GOES_ON = ("elif", "else", "except", "finally")
_IGNORED = (tokenize.NL, tokenize.COMMENT, tokenize.ENDMARKER)
_SPACE = re.compile(r"\s")
_WORD = re.compile(r"(?<!\w)[^\W\d]\w*")
_READ_TO_THE_END = LINK_QUERIES
"""Tags of a token that are those of its last character; the others are those of its first one."""
MOST_NUMBERS = 1 << 16
"""Blocks of a file, or beginnings of names: two files' numbers never meet."""
_MOST_LEVELS = 255


def tags_of_file(parsed: ParsedSource, written: TokenSpans) -> Arrays:
    """The TAGS of the tokens of a file."""
    found = token_tags(parsed.text, syntax_tags(parsed.text), written.starts, written.ends)
    for name, what in (("block", "blocks"), ("name", "beginnings of defined names")):
        if found[name].max(initial=0) >= MOST_NUMBERS:
            raise UsageError(
                f"a file must have fewer than {MOST_NUMBERS} {what}, but {parsed.name} has more; remove it"
            )
    return found


def syntax_tags(text: str) -> Tags:
    """The TAGS of every character [n] of Python source, or of the beginning of one: a beginning has the same tags."""
    definition = np.zeros(len(text), dtype=np.int32)
    reader = _Reader()
    for token in _tokens(text):
        reader.read(token)
        if reader.defines:
            definition[token.start : token.end] = 1
    names = ("block", "parent", "grandparent", "head", "level", "scope")
    blocks = dict(zip(names, _lasting(reader.changes, len(text)), strict=True))
    return {**blocks, "definition": definition, **_link_names(text, definition, reader.calls)}


def _link_names(text: str, definition: NDArray[np.int32], calls: Sequence[_Call]) -> Tags:
    """The tags of names [n], from where names are defined [n] and where parentheses behind names open and close."""
    name, defined = np.zeros((2, len(text) + 1), dtype=np.int32)
    numbers: dict[str, int] = {}
    waiting, within = deque(calls), [(0, 0, 0)]

    def pass_calls(end: int) -> None:
        """Note the parentheses that open or close before `end`, with the number that their name has by then."""
        while waiting and waiting[0].start < end:
            call = waiting.popleft()
            number = numbers.get(call.name, 0)
            within.append((call.start, number, number if call.defines else 0))

    for word in _WORD.finditer(text):
        start = word.start()
        pass_calls(start)
        for length in range(1, len(word[0]) + 1):
            beginning = word[0][:length]
            if definition[start]:
                numbers.setdefault(beginning, len(numbers) + 1)
                defined[start + length] = numbers[beginning]
            elif beginning not in numbers:
                break
            name[start + length - 1] = numbers[beginning]
    pass_calls(len(text))
    callee, signature = _lasting(within, len(text))
    return {"name": name[:-1], "defined": defined[:-1], "callee": callee, "signature": signature}


def _lasting(changes: Sequence[tuple[int, ...]], end: int) -> list[NDArray[np.int32]]:
    """The value at every place before `end`: each holds from its first place until the next begins."""
    at, *values = np.array(changes, dtype=np.int32).T
    lasting = np.diff(at.clip(max=end), append=end)
    return [np.repeat(each, lasting) for each in values]


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


class _Call(NamedTuple):
    """From the character `start` on, the innermost parentheses stand behind `name` ("": no name), or define it."""

    start: int
    name: str
    defines: bool


@dataclass
class _Statement:
    """A compound statement: the number of suites it stands in, its own numbers, whether decorators await their def."""

    depth: int
    block: int
    scope: int
    decorated: bool = False


class _Reader:
    """Follows the compound statements of Python token by token.

    `changes`: the characters from which another statement is the innermost, or its first line is over, with its block,
    that block's parent and grandparent, the block whose first line it is, the number of open statements, and its scope.
    `calls`: where the innermost parentheses change. `defines`: whether the last token was the name of a function or
    class.
    """

    def __init__(self) -> None:
        self.changes: list[tuple[int, ...]] = [(0,) * 7]
        self.defines = False
        self.calls: list[_Call] = []
        self._brackets: list[_Call] = []
        self._open: list[_Statement] = []
        self._blocks = self._scopes = self._depth = self._head = 0
        self._begins, self._first, self._before = True, "", ""

    def read(self, token: _Token) -> None:
        """Take note of the next token."""
        if token.kind in _IGNORED:
            return
        before, self._before = self._before, token.word
        self._read_bracket(token, before)
        self.defines = False
        if token.kind == tokenize.INDENT:
            self._depth += 1
            if self._first == "match":
                self._start(token.end, self._depth - 1)
        elif token.kind == tokenize.DEDENT:
            self._depth -= 1
        elif token.kind == tokenize.NEWLINE:
            self._begins = True
            if self._head:
                self._head = 0
                self._note(token.end)
        elif self._begins:
            self._begins, self._first = False, token.word
            self._begin_line(token)
        elif before == self._first == "async" and token.word == "def":
            self._define(token.end, self._open[-1])
            self._first = "def"
        else:
            self.defines = before == self._first and before in _DEFINITIONS

    def _read_bracket(self, token: _Token, before: str) -> None:
        """Note where the parentheses behind a name open and close; brackets of other kinds within change nothing."""
        if token.kind == tokenize.NEWLINE:
            self._brackets.clear()
        elif token.kind == tokenize.OP and token.word in ("(", "[", "{"):
            outer = self._brackets[-1] if self._brackets else _Call(token.start, "", False)
            named = token.word == "(" and _WORD.fullmatch(before)
            self._brackets.append(_Call(token.start, before, self.defines) if named else outer)
            self.calls.append(self._brackets[-1]._replace(start=token.start))
        elif token.kind == tokenize.OP and token.word in (")", "]", "}") and self._brackets:
            self._brackets.pop()
            outer = self._brackets[-1] if self._brackets else _Call(token.end, "", False)
            self.calls.append(outer._replace(start=token.end))

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
        self._open.append(_Statement(depth, self._blocks, self.changes[-1][-1]))
        self._head = self._blocks
        self._note(at)

    def _define(self, at: int, statement: _Statement) -> None:
        """Open a new scope for a statement, unless its decorators did."""
        if not statement.decorated:
            self._scopes += 1
            statement.scope = self._scopes
        statement.decorated = False
        self._head = statement.block
        self._note(at)

    def _note(self, at: int) -> None:
        blocks = [0, 0, 0, *(each.block for each in self._open)]
        scope = self._open[-1].scope if self._open else 0
        self.changes.append((at, *blocks[:-4:-1], self._head, min(len(self._open), _MOST_LEVELS), scope))


def token_tags(text: str, tags: Tags, starts: NDArray[np.int64], ends: NDArray[np.int64]) -> Tags:
    """The tags of tokens [m] that stand for the characters from `starts` to `ends` of a text.

    A token is where its first character that is no white space is (its first, if all are), since tokens of words begin
    with the space before them; it is a definition if any of its characters is. Which name it asks for is known when its
    last character is read. A character that goes on in the next token is not known yet: a token without another one is
    where the character before it is.
    """
    if len(starts) == 0:
        return {name: np.zeros(0, dtype=np.int32) for name in tags}
    ends = np.minimum(ends, np.append(starts[1:], len(text)))
    solid = np.ones(len(text) + 1, dtype=bool)
    solid[[match.start() for match in _SPACE.finditer(text)]] = False
    following = np.where(solid, np.arange(len(solid)), len(text))
    following = np.minimum.accumulate(following[::-1])[::-1]
    characters = np.where(following[starts] < ends, following[starts], np.where(starts < ends, starts, starts - 1))
    last = np.maximum(starts, ends) - 1
    found = {
        name: np.append(0, values)[(last if name in _READ_TO_THE_END else characters) + 1].astype(np.int32)
        for name, values in tags.items()
    }
    defined = np.cumsum(np.append(0, tags["definition"]))
    found["definition"] = (defined[np.maximum(starts, ends)] > defined[starts]).astype(np.int32)
    return found
