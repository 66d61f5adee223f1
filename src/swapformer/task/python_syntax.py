"""Analysis of Python source by Python's own parser: scopes, definitions, roles of names, documented functions."""

from __future__ import annotations

import ast
import keyword
import re
import tokenize
import warnings
from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from swapformer.errors import UsageError

_LINE_END = re.compile(r"\r\n|\r|\n")
"""What ends a line for Python: unlike str.splitlines, no form feed and the like."""


class ParsedSource:
    """A parsed `text`: its syntax `tree`, and its `lines` as Python counts them; `name` is what messages call it.

    UsageError: the text is no Python of the running version, with its line.
    """

    def __init__(self, text: str, name: str) -> None:
        self.text, self.name = text, name
        # A byte order mark is no Python; a form feed instead of it changes neither lines nor columns.
        source = "\f" + text[1:] if text.startswith("\ufeff") else text
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # a text may hold what newer Pythons frown upon
                self.tree = ast.parse(source)
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            line = getattr(error, "lineno", None)
            raise UsageError(
                f"{name}{'' if line is None else f', line {line}'} must be Python source, but: {error}; leave it out"
            ) from None
        self._starts = [0, *(match.end() for match in _LINE_END.finditer(text))]
        self.lines = [source[start:end] for start, end in pairwise([*self._starts, len(text)])]

    def offset(self, line: int, byte: int) -> int:
        """The character that stands `byte` UTF-8 bytes after the beginning of a line (from 1)."""
        start = self._starts[line - 1]
        content = self.text[start : start + byte]
        return start + (byte if content.isascii() else len(content.encode()[:byte].decode()))

    def character(self, line: int, column: int) -> int:
        """The character in a `column` (from 0) of a line (from 1)."""
        return self._starts[line - 1] + column

    def start(self, node: ast.stmt | ast.expr) -> int:
        """The first character of a node; of a definition, that of its first decorator's @."""
        decorators = getattr(node, "decorator_list", None)
        if decorators:
            return self.text.rindex("@", 0, self.offset(decorators[0].lineno, decorators[0].col_offset))
        return self.offset(node.lineno, node.col_offset)

    def end(self, node: ast.stmt | ast.expr) -> int:
        """The character after a node's last."""
        assert node.end_lineno is not None and node.end_col_offset is not None, "ast.parse gives every node an end"
        return self.offset(node.end_lineno, node.end_col_offset)


Tags = dict[str, NDArray[np.int32]]

TAGS = ("block", "scope", "definition")
"""Names of the tags.

`block`: the innermost compound statement (def, class, if, for, while, with, try, match), with all its parts and, for a
definition, its decorators; `scope`: the innermost function or class. Blocks and scopes are numbered from 1 in the order
in which they begin; 0 is what stands in none. `definition`: 1 where the name of a function or class is defined.
"""

DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_BLOCKS = (
    *DEFINITIONS, ast.If, ast.For, ast.AsyncFor, ast.While, ast.With, ast.AsyncWith, ast.Try, ast.TryStar, ast.Match,
)  # fmt: skip
_DEFINED = re.compile(r"(?:async[\s\\]+)?(?:def|class)[\s\\]+(\w+)")
_SPACE = re.compile(r"\s")


def syntax_tags(parsed: ParsedSource) -> Tags:
    """The TAGS of every character [n]."""
    tags = {name: np.zeros(len(parsed.text), dtype=np.int32) for name in TAGS}
    numbers = {"block": 0, "scope": 0}
    for node in _blocks(parsed.tree):
        extent = slice(parsed.start(node), parsed.end(node))
        if parsed.text.startswith("elif", extent.start):  # to the tree, a statement of its own
            continue
        for name in ("block", "scope") if isinstance(node, DEFINITIONS) else ("block",):
            numbers[name] += 1
            tags[name][extent] = numbers[name]
        if isinstance(node, DEFINITIONS):
            tags["definition"][name_of(parsed, node)] = 1
    return tags


def name_of(parsed: ParsedSource, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> slice:
    """The characters of the name that a definition defines."""
    match = _DEFINED.match(parsed.text, parsed.offset(node.lineno, node.col_offset))
    assert match is not None, "a definition begins with its keyword"
    return slice(*match.span(1))


def _blocks(tree: ast.Module) -> Iterator[ast.stmt]:
    """The compound statements, each before those within it, in the order of the text."""
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, _BLOCKS):
            yield node
        waiting += [child for child in ast.iter_child_nodes(node) if not isinstance(child, ast.expr)][::-1]


def token_tags(text: str, tags: Tags, starts: NDArray[np.int64], ends: NDArray[np.int64]) -> Tags:
    """The tags of tokens [m] that stand for the characters from `starts` to `ends` of a text.

    A token is where its first character that is no white space is (its first, if all are), since tokens of words begin
    with the space before them; it is a definition if any of its characters is.
    """
    if len(text) == 0 or len(starts) == 0:
        return {name: np.zeros(len(starts), dtype=np.int32) for name in tags}
    solid = np.ones(len(text) + 1, dtype=bool)
    solid[[match.start() for match in _SPACE.finditer(text)]] = False
    following = np.where(solid, np.arange(len(solid)), len(text))
    following = np.minimum.accumulate(following[::-1])[::-1]
    first = np.minimum(starts, len(text) - 1)
    characters = np.where(following[first] < ends, following[first], first)
    defined = np.concatenate([[0], np.cumsum(tags["definition"])])
    found = {name: values[characters] for name, values in tags.items()}
    found["definition"] = (defined[ends] > defined[starts]).astype(np.int32)
    return found


ROLES = (
    "comment", "keyword", "number", "operator", "string",
    "argument", "assigned", "attribute", "called", "definition", "imported", "method", "name", "parameter",
)  # fmt: skip
"""What a token may be. `argument`: the name before = in a call; `called`: a name that is called; `method`: an attribute
that is called; `assigned`: a name that takes a value; `definition`: of a function or class; `name`: any other name."""

_KINDS = {tokenize.COMMENT: "comment", tokenize.NUMBER: "number", tokenize.OP: "operator", tokenize.STRING: "string"}
_FORMATTED = ("FSTRING", "TSTRING")
_FORMATTED_NODES = (ast.JoinedStr, getattr(ast, "TemplateStr", ast.JoinedStr))
_NAME = re.compile(r"\w+")


class RoleSpan(NamedTuple):
    """The characters of a text from `start` to `end`, and their label."""

    start: int
    end: int
    label: str


def token_roles(parsed: ParsedSource) -> list[RoleSpan]:
    """Every token that is not white space, in order, with its role. What is formatted in a string belongs to it."""
    played = dict(_names(parsed))
    spans = []
    depth = begin = 0
    for token in tokenize.generate_tokens(iter([*parsed.lines, ""]).__next__):
        start, end = parsed.character(*token.start), parsed.character(*token.end)
        family, _, part = tokenize.tok_name[token.type].partition("_")
        if family in _FORMATTED:  # since Python 3.12 the parts of such a string are tokens
            begin = start if part == "START" and depth == 0 else begin
            depth += {"START": 1, "END": -1}.get(part, 0)
            if part == "END" and depth == 0:
                spans.append(RoleSpan(begin, end, "string"))
        elif depth == 0 and token.type == tokenize.NAME:
            plain = "keyword" if keyword.iskeyword(token.string) else "name"
            spans.append(RoleSpan(start, end, played.get(start, plain)))
        elif depth == 0 and token.type in _KINDS:
            spans.append(RoleSpan(start, end, _KINDS[token.type]))
    return spans


def _names(parsed: ParsedSource) -> Iterator[tuple[int, str]]:
    """Where names stand that the syntax tree knows a role of."""
    waiting: list[ast.AST] = [parsed.tree]
    called: set[ast.AST] = set()
    while waiting:
        node = waiting.pop()
        if isinstance(node, _FORMATTED_NODES):  # its parts' positions are those of the string, or wrong (Python 3.11)
            continue
        waiting.extend(ast.iter_child_nodes(node))
        if isinstance(node, ast.Call):
            called.add(node.func)
        if isinstance(node, DEFINITIONS):
            yield name_of(parsed, node).start, "definition"
        elif isinstance(node, ast.arg):
            yield parsed.offset(node.lineno, node.col_offset), "parameter"
        elif isinstance(node, ast.keyword) and node.arg is not None:
            yield parsed.offset(node.lineno, node.col_offset), "argument"
        elif isinstance(node, ast.Attribute):
            yield parsed.end(node) - len(node.attr), "method" if node in called else "attribute"
        elif isinstance(node, ast.Name) and node in called:
            yield parsed.offset(node.lineno, node.col_offset), "called"
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield parsed.offset(node.lineno, node.col_offset), "assigned"
        elif isinstance(node, ast.Import | ast.ImportFrom):
            # The statement has no other words than names, of modules too, and its keywords.
            words = _NAME.finditer(parsed.text, parsed.start(node), parsed.end(node))
            yield from ((word.start(), "imported") for word in words if word[0] not in ("import", "from", "as"))


class DocumentedFunction(NamedTuple):
    """A documented function: the line of its definition, its name and its docstring without indentation."""

    line: int
    name: str
    docstring: str


def documented_functions(parsed: ParsedSource) -> Iterator[DocumentedFunction]:
    """Every function and method with a docstring, in the order of the text, but for names such as __init__."""
    found = [node for node in ast.walk(parsed.tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    for node in sorted(found, key=lambda node: (node.lineno, node.col_offset)):
        docstring = (ast.get_docstring(node) or "").strip()
        if docstring and not (node.name.startswith("__") and node.name.endswith("__")):
            yield DocumentedFunction(node.lineno, node.name, docstring)
