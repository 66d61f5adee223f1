"""What is said of Python source, held to another reading: by Python's tokeniser, where the code asks its parser."""

from __future__ import annotations

import ast
import contextlib
import functools
import inspect
import keyword
import textwrap
import tokenize
from collections import Counter
from io import StringIO
from itertools import groupby, pairwise
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from swapformer.errors import UsageError
from swapformer.task.python_syntax import (
    ROLES,
    TAGS,
    ParsedSource,
    documented_functions,
    syntax_tags,
    token_roles,
    token_tags,
)

TRICKY = '''\
"""Ünïcödé before everything: „def no(): pass“."""
import os, os.path as where
from json import (loads as läden,
                  dumps)
@decorated( # def comment(self):
    1)
@twice
async def \\
    größe(self, é, *rest: int, key=lambda x: x, **more) -> "def nothing()":
    "Döcstring."
    if é: return 1
    elif rest[0](key=2) and self.method(é).attribute:
        for x, y in rest: pass
        else:
            del x
            # a comment at the end, which is in the for but not in the statement
    else: print(f"{é!r:>{key}} {self.inner(1)}", sep='')

    with open("ö") as file, file: file.read()
    try:
        match é:
            case {"a": b}: async_ = b
    except (ValueError, KeyError) as error:
        raise
    finally:
        while True: break
    return x; y = 3

class Ä(Base, metaclass=Meta): pass
if True:
\tdef tabbed(): return 0x1F + 1e3
'''
MODULES = (contextlib, functools, textwrap)


def sources() -> list[tuple[str, str]]:
    found = [(module.__name__, Path(str(module.__file__)).read_text(encoding="utf-8")) for module in MODULES]
    return [("tricky", TRICKY), ("windows", TRICKY.replace("\n", "\r\n")), ("mark", "\ufeff" + TRICKY), *found]


SOURCES = [pytest.param(text, id=name) for name, text in sources()]


def tokens(text: str) -> list[tuple[int, str, int, int]]:
    """Kind, text, start and end of every token, lines being counted by hand."""
    starts = np.cumsum([0, *(len(line) for line in text.split("\n"))]) + np.arange(text.count("\n") + 2)
    plain = text.replace("\ufeff", " " if text[1:2] == " " else "\f")
    read = tokenize.generate_tokens(StringIO(plain, newline="\n").readline)
    return [
        (t.type, t.string, int(starts[t.start[0] - 1]) + t.start[1], int(starts[t.end[0] - 1]) + t.end[1]) for t in read
    ]


def logical_lines(text: str) -> list[tuple[int, list[tuple[str, int, int]]]]:
    """Depth and tokens of every logical line."""
    lines: list[tuple[int, list[tuple[str, int, int]]]] = []
    depth, line = 0, []
    for kind, string, start, end in tokens(text):
        if kind in (tokenize.INDENT, tokenize.DEDENT):
            depth += 1 if kind == tokenize.INDENT else -1
        elif kind == tokenize.NEWLINE:
            lines.append((depth, line))
            line = []
        elif kind not in (tokenize.NL, tokenize.COMMENT, tokenize.ENDMARKER):
            line.append((string, start, end))
    return lines


OPENING = {"def", "class", "if", "for", "while", "with", "try", "async"}
GOING_ON = {"elif", "else", "except", "finally"}


def statements(text: str) -> list[tuple[int, int, str]]:
    """Start, end and keyword of the compound statements in the order in which they begin, from indentation alone."""
    lines = logical_lines(text)
    found = []
    for index, (depth, line) in enumerate(lines):
        word = line[0][0]
        if word == "@" and lines[index - 1][1][0][0] != "@":
            word = next(other[0][0] for _, other in lines[index:] if other[0][0] != "@")
        elif word == "@" or (index and lines[index - 1][1][0][0] == "@"):
            continue
        if word not in OPENING and not (word == "match" and line[-1][0] == ":" and lines[index + 1][0] > depth):
            continue
        if word == "async":
            word = next(other[1][0] for _, other in lines[index:] if other[0][0] != "@")
        last, decorators = index, True
        for later in range(index + 1, len(lines)):
            first = lines[later][1][0][0]
            decorators = decorators and lines[later - 1][1][0][0] == "@"
            if lines[later][0] > depth or (lines[later][0] == depth and (first in GOING_ON or decorators)):
                last = later
            else:
                break
        found.append((line[0][1], lines[last][1][-1][2], word))
    return found


@pytest.mark.parametrize("text", SOURCES)
def test_blocks_and_scopes_are_what_indentation_says(text: str) -> None:
    tags = syntax_tags(ParsedSource(text, "a"))
    assert set(tags) == set(TAGS)
    found = statements(text)
    assert len(found) > 8
    for name, kinds in (("block", None), ("scope", {"def", "class"})):
        chosen = [(start, end) for start, end, word in found if kinds is None or word in kinds]
        expected = np.zeros(len(text), dtype=int)
        for number, (start, end) in enumerate(chosen, 1):
            expected[start:end] = number
        np.testing.assert_array_equal(tags[name], expected)


@pytest.mark.parametrize("text", SOURCES)
def test_definitions_are_the_names_after_def_and_class(text: str) -> None:
    named = [
        (start, end)
        for (_, word, *_), (_, _, start, end) in zip(tokens(text), tokens(text)[1:], strict=False)
        if word in ("def", "class")
    ]
    tags = syntax_tags(ParsedSource(text, "a"))["definition"]
    expected = np.zeros(len(text), dtype=int)
    for start, end in named:
        expected[start:end] = 1
    np.testing.assert_array_equal(tags, expected)
    assert 0 < len(named) == np.sum(np.diff(expected) == 1)


@pytest.mark.parametrize("size", [1, 2, 3, 7])
def test_tokens_have_the_tags_of_what_they_stand_for(size: int) -> None:
    """Pieces of any size, cut without regard to the source, checked one by one."""
    text = inspect.getsource(functools.singledispatchmethod) + inspect.getsource(functools.lru_cache)
    tags = syntax_tags(ParsedSource(text, "a"))
    starts = np.arange(0, len(text), size)
    ends = np.minimum(starts + size, len(text))
    found = token_tags(text, tags, starts, ends)
    for index, (start, end) in enumerate(zip(starts, ends, strict=True)):
        piece = text[start:end]
        place = start + (len(piece) - len(piece.lstrip()) if piece.strip() else 0)
        assert found["block"][index] == tags["block"][place] and found["scope"][index] == tags["scope"][place]
        assert found["definition"][index] == max(tags["definition"][start:end])
    runs = [
        list(run) for tagged, run in groupby(range(len(starts)), key=lambda n: bool(found["definition"][n])) if tagged
    ]
    names = " ".join(text[starts[run[0]] : ends[run[-1]]] for run in runs)
    defined = [node.name for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef | ast.ClassDef)]
    assert len(defined) > 4 and all(name in names for name in defined)


@pytest.mark.parametrize("text", SOURCES)
def test_every_token_has_one_role_and_its_kind_is_the_tokenisers(text: str) -> None:
    spans = token_roles(ParsedSource(text, "a"))
    assert {span.label for span in spans} <= set(ROLES) and all(a.end <= b.start for a, b in pairwise(spans))
    covered = np.zeros(len(text), dtype=bool)
    for start, end, label in spans:
        covered[start:end] = True
        word = text[start:end]
        if label not in ("comment", "string", "number", "operator"):
            assert word.isidentifier() and keyword.iskeyword(word) == (label == "keyword")
    solid = np.array([not character.isspace() and character not in "\\\ufeff" for character in text])
    assert (covered | ~solid).all(), "nothing but white space, line joins and the byte order mark is without a role"
    kinds = {tokenize.NUMBER: "number", tokenize.COMMENT: "comment"}
    read = Counter(kinds[kind] for kind, *_ in tokens(text) if kind in kinds)
    assert read == Counter(span.label for span in spans if span.label in kinds.values())


def test_roles_of_names_are_those_that_they_play() -> None:
    found = [(TRICKY[start:end], label) for start, end, label in token_roles(ParsedSource(TRICKY, "a"))]
    for word, label in {
        "os": "imported", "where": "imported", "läden": "imported", "decorated": "called", "twice": "name",
        "größe": "definition", "Ä": "definition", "é": "parameter", "more": "parameter", "int": "name",
        "print": "called", "method": "method", "attribute": "attribute", "read": "method", "file": "assigned",
        "sep": "argument", "metaclass": "argument", "Meta": "name", "async": "keyword", "0x1F": "number",
        "b": "name", "async_": "assigned", "inner": "", "# def comment(self):": "comment", "match": "name",
    }.items():  # fmt: skip
        labels = {given for text, given in found if text == word}
        assert label in labels if label else not labels, (word, labels)
    assert [label for text, label in found if text == "é"] == ["parameter", "name", "name", "name"]
    assert ('f"{é!r:>{key}} {self.inner(1)}"', "string") in found, "whole, whatever the version of Python"


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__)
def test_documented_functions_are_found_with_the_docstrings_that_python_keeps(module: ModuleType) -> None:
    text = Path(str(module.__file__)).read_text(encoding="utf-8")
    found = list(documented_functions(ParsedSource(text, "a")))
    lines = text.split("\n")
    assert all(f"def {name}(" in lines[line - 1] and not name.startswith("__") for line, name, _ in found)
    own = [
        value
        for name, value in vars(module).items()
        if inspect.isfunction(value) and value.__doc__ and (value.__module__, value.__name__) == (module.__name__, name)
    ]
    documented = {(name, docstring) for _, name, docstring in found}
    assert own and {(value.__name__, (inspect.getdoc(value) or "").strip()) for value in own} <= documented


def test_what_is_no_python_is_named_with_its_line() -> None:
    with pytest.raises(UsageError, match=r"'a.py', line 2 must be Python source, but: .*; leave it out"):
        ParsedSource("x = 1\ndef f(:\n", "'a.py'")
    with pytest.raises(UsageError, match=r"'b.py' must be Python source, but: .*null"):
        ParsedSource("x = 1\0", "'b.py'")
