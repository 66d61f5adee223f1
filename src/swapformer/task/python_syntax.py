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

from swapformer.errors import UsageError

_LINE_END = re.compile(r"\r\n|\r|\n")
"""What ends a line for Python: unlike str.splitlines, no form feed and the like."""


def source_lines(text: str) -> tuple[list[str], list[int]]:
    """The lines of a text as Python counts them, and where they begin; the last is empty behind a line's end.

    A byte order mark is no Python; a form feed instead of it changes neither lines nor columns.
    """
    starts = [0, *(match.end() for match in _LINE_END.finditer(text))]
    source = "\f" + text[1:] if text.startswith("\ufeff") else text
    return [source[start:end] for start, end in pairwise([*starts, len(text)])], starts


class ParsedSource:
    """A parsed `text`: its syntax `tree`, and its `lines` as Python counts them; `name` is what messages call it.

    UsageError: the text is no Python of the running version, with its line.
    """

    def __init__(self, text: str, name: str) -> None:
        self.text, self.name = text, name
        self.lines, self._starts = source_lines(text)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # a text may hold what newer Pythons frown upon
                self.tree = ast.parse("".join(self.lines))
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            line = getattr(error, "lineno", None)
            raise UsageError(
                f"{name}{'' if line is None else f', line {line}'} must be Python source, but: {error}; remove it"
            ) from None

    def offset(self, line: int, byte: int) -> int:
        """The character that stands `byte` UTF-8 bytes after the beginning of a line (from 1)."""
        start = self._starts[line - 1]
        content = self.text[start : start + byte]
        return start + (byte if content.isascii() else len(content.encode()[:byte].decode()))

    def character(self, line: int, column: int) -> int:
        """The character in a `column` (from 0) of a line (from 1)."""
        return self._starts[line - 1] + column

    def end(self, node: ast.stmt | ast.expr) -> int:
        """The character after a node's last."""
        assert node.end_lineno is not None and node.end_col_offset is not None, "ast.parse gives every node an end"
        return self.offset(node.end_lineno, node.end_col_offset)


DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_DEFINED = re.compile(r"(?:async[\s\\]+)?(?:def|class)[\s\\]+(\w+)")


def name_of(parsed: ParsedSource, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> slice:
    """The characters of the name that a definition defines."""
    match = _DEFINED.match(parsed.text, parsed.offset(node.lineno, node.col_offset))
    assert match is not None, "a definition begins with its keyword"
    return slice(*match.span(1))


ROLES = (
    "comment", "keyword", "number", "operator", "string",
    "argument", "assigned", "attribute", "called", "definition", "imported", "method", "name", "parameter",
)  # fmt: skip
"""What a token may be. `argument`: the name before = in a call; `called`: a name that is called; `method`: an attribute
that is called; `assigned`: a name that takes a value; `definition`: of a function or class; `name`: any other name,
also one that takes a value in `except … as` or in a pattern of `match`."""

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
    """The places of names whose role the syntax tree knows."""
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
            words = _NAME.finditer(parsed.text, parsed.offset(node.lineno, node.col_offset), parsed.end(node))
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
