"""What each token of Python source is: its kind, and of a name the role that it plays."""

from __future__ import annotations

import ast
import keyword
import re
import tokenize
from collections.abc import Iterator
from typing import NamedTuple

from swapformer.task.code.parsed import Parsed
from swapformer.task.code.syntax import DEFINITIONS, name_of

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


class Span(NamedTuple):
    """The characters of a text from `start` to `end`, and their label."""

    start: int
    end: int
    label: str


def roles(parsed: Parsed) -> list[Span]:
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
                spans.append(Span(begin, end, "string"))
        elif depth == 0 and token.type == tokenize.NAME:
            plain = "keyword" if keyword.iskeyword(token.string) else "name"
            spans.append(Span(start, end, played.get(start, plain)))
        elif depth == 0 and token.type in _KINDS:
            spans.append(Span(start, end, _KINDS[token.type]))
    return spans


def _names(parsed: Parsed) -> Iterator[tuple[int, str]]:
    """Where names stand that the syntax tree knows a role of."""
    waiting: list[ast.AST] = [parsed.tree]
    called: set[ast.AST] = set()
    while waiting:
        node = waiting.pop()
        if isinstance(node, _FORMATTED_NODES):  # its parts' places are those of the string, or wrong (Python 3.11)
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
            yield from _imported(parsed, node)


def _imported(parsed: Parsed, node: ast.Import | ast.ImportFrom) -> Iterator[tuple[int, str]]:
    """The names of an import, of modules too; the statement has no other words than these and its keywords."""
    for match in _NAME.finditer(parsed.text, parsed.start(node), parsed.end(node)):
        if match[0] not in ("import", "from", "as"):
            yield match.start(), "imported"
