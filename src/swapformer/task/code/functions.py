"""Functions that say what they do."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import NamedTuple

from swapformer.task.code.parsed import Parsed


class Function(NamedTuple):
    """A documented function: the line of its definition, its name and its docstring without indentation."""

    line: int
    name: str
    docstring: str


def functions(parsed: Parsed) -> Iterator[Function]:
    """Every function and method with a docstring, in the order of the text, but for names such as __init__."""
    found = [node for node in ast.walk(parsed.tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    for node in sorted(found, key=lambda node: (node.lineno, node.col_offset)):
        docstring = (ast.get_docstring(node) or "").strip()
        if docstring and not (node.name.startswith("__") and node.name.endswith("__")):
            yield Function(node.lineno, node.name, docstring)
