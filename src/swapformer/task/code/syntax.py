"""The syntax tree and the definitions of Python source as tags of its characters, and of the tokens made of them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from swapformer.task.code.parsed import Parsed

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


def syntax(parsed: Parsed) -> Tags:
    """The TAGS of every character [n]."""
    tags = {name: np.zeros(len(parsed.text), dtype=np.int32) for name in TAGS}
    numbers = {"block": 0, "scope": 0}
    for node in _blocks(parsed.tree):
        place = slice(parsed.start(node), parsed.end(node))
        if parsed.text.startswith("elif", place.start):  # to the tree, a statement of its own
            continue
        for name in ("block", "scope") if isinstance(node, DEFINITIONS) else ("block",):
            numbers[name] += 1
            tags[name][place] = numbers[name]
        if isinstance(node, DEFINITIONS):
            tags["definition"][name_of(parsed, node)] = 1
    return tags


def name_of(parsed: Parsed, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> slice:
    """Where the name that a definition defines stands."""
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


def of_tokens(text: str, tags: Tags, starts: NDArray[np.int64], ends: NDArray[np.int64]) -> Tags:
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
    places = np.where(following[first] < ends, following[first], first)
    defined = np.concatenate([[0], np.cumsum(tags["definition"])])
    found = {name: values[places] for name, values in tags.items()}
    found["definition"] = (defined[ends] > defined[starts]).astype(np.int32)
    return found
