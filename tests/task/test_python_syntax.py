"""What is said of Python source, held to another reading: by Python's tokeniser, where the code asks its parser."""

from __future__ import annotations

import contextlib
import functools
import inspect
import keyword
import textwrap
import tokenize
from collections import Counter
from io import StringIO
from itertools import pairwise
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from swapformer.errors import UsageError
from swapformer.task.python_syntax import ROLES, ParsedSource, documented_functions, token_roles
from texts import whole_strings

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
    read = whole_strings(tokenize.generate_tokens(StringIO(plain, newline="\n").readline))
    return [
        (t.type, t.string, int(starts[t.start[0] - 1]) + t.start[1], int(starts[t.end[0] - 1]) + t.end[1]) for t in read
    ]


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
    with pytest.raises(UsageError, match=r"'a.py', line 2 must be Python source, but: .*; remove it"):
        ParsedSource("x = 1\ndef f(:\n", "'a.py'")
    with pytest.raises(UsageError, match=r"'b.py' must be Python source, but: .*null"):
        ParsedSource("x = 1\0", "'b.py'")
