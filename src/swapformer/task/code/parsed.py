"""A text of Python source with its syntax tree, and where in the text a node stands."""

from __future__ import annotations

import ast
import re
import warnings
from itertools import pairwise

from swapformer.errors import UsageError

_LINE_END = re.compile(r"\r\n|\r|\n")
"""What ends a line for Python: unlike str.splitlines, no form feed and the like."""


class Parsed:
    """`text`, its `tree`, and its `lines` as Python counts them, with their ends; `name` is what messages call it.

    UsageError: the text is no Python of the running version, with its line.
    """

    def __init__(self, text: str, name: str) -> None:
        self.text, self.name = text, name
        # A byte order mark is no Python; a form feed takes its place and changes nothing, neither lines nor columns.
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
