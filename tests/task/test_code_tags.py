"""Tags of Python source against its syntax tree, and that they say nothing of what is still to be read."""

from __future__ import annotations

import ast
import functools
import inspect
import tokenize
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from swapformer.task import code_tags
from swapformer.task.code_tags import TAGS, syntax_tags, token_tags
from swapformer.task.python_syntax import DEFINITIONS, ParsedSource
from task.test_python_syntax import SOURCES, TRICKY, tokens

BLOCKS = (
    *DEFINITIONS, ast.If, ast.For, ast.AsyncFor, ast.While, ast.With, ast.AsyncWith, ast.Try, ast.TryStar, ast.Match,
)  # fmt: skip
KEYWORDS = {"def", "class", "if", "for", "while", "with", "try", "async", "elif", "else", "except", "finally"}


def from_tree(text: str) -> tuple[dict[str, NDArray[Any]], list[slice]]:
    """The number of the innermost whole statement at every character, and the heads of the matches."""
    parsed = ParsedSource(text, "a")
    found = {name: np.zeros(len(text), dtype=int) for name in ("block", "scope")}
    numbers = dict.fromkeys(found, 0)
    heads = []

    def walk(node: ast.AST) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, BLOCKS):
                first = min(
                    [child, *getattr(child, "decorator_list", [])], key=lambda one: (one.lineno, one.col_offset)
                )
                start, end = parsed.offset(first.lineno, first.col_offset), parsed.end(child)
                start = text.rindex("@", 0, start) if first is not child else start
                if not text.startswith("elif", start):  # to the tree, a statement of its own
                    for name in ("block", "scope") if isinstance(child, DEFINITIONS) else ("block",):
                        numbers[name] += 1
                        found[name][start:end] = numbers[name]
                if isinstance(child, ast.Match):
                    case = child.cases[0].pattern
                    heads.append(slice(start, text.rindex("case", 0, parsed.offset(case.lineno, case.col_offset))))
            if not isinstance(child, ast.expr):
                walk(child)

    walk(parsed.tree)
    return found, heads


@pytest.mark.parametrize("text", SOURCES)
def test_blocks_and_scopes_are_those_of_the_tree_once_a_statement_is_known(text: str) -> None:
    """At every character of every token but the keywords that statements begin with, and the heads of matches."""
    expected, heads = from_tree(text)
    known = np.zeros(len(text), dtype=bool)
    for kind, word, start, end in tokens(text):
        known[start:end] |= kind in (tokenize.NAME, tokenize.OP, tokenize.NUMBER, tokenize.STRING)
        known[start:end] &= word not in KEYWORDS
    for head in heads:
        known[head] = False
    tags = syntax_tags(text)
    assert set(tags) == set(TAGS) and known.mean() > 0.3 and len(np.unique(expected["block"])) > 8
    for name, numbers in expected.items():
        np.testing.assert_array_equal(tags[name][known], numbers[known])


@pytest.mark.parametrize("text", SOURCES)
def test_definitions_are_the_names_after_def_and_class(text: str) -> None:
    named = [
        (start, end)
        for (_, word, *_), (_, _, start, end) in zip(tokens(text), tokens(text)[1:], strict=False)
        if word in ("def", "class")
    ]
    expected = np.zeros(len(text), dtype=int)
    for start, end in named:
        expected[start:end] = 1
    np.testing.assert_array_equal(syntax_tags(text)["definition"], expected)
    assert 0 < len(named) == np.sum(np.diff(expected) == 1)


def beginnings_that_differ(text: str, places: range) -> Iterator[int]:
    """The lengths at which a beginning of a text has other tags than the whole has there."""
    whole = syntax_tags(text)
    for place in places:
        own = syntax_tags(text[:place])
        if any(not np.array_equal(own[name], values[:place]) for name, values in whole.items()):
            yield place


@pytest.mark.parametrize("text", SOURCES)
def test_the_beginning_of_a_text_has_the_tags_that_it_has_in_the_whole(text: str) -> None:
    text = text[:6000]
    assert list(beginnings_that_differ(text, range(0, len(text), 1 if len(text) < 2000 else 61))) == []


@pytest.mark.parametrize("fault", ["a keyword is known when it begins", "a line belongs to what comes next"])
def test_tags_that_look_ahead_are_noticed(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    note = code_tags._Reader._note

    def early(self: Any, at: int) -> None:
        note(self, at - (2 if "keyword" in fault else at - (TRICKY.rfind("\n", 0, at) + 1)))

    monkeypatch.setattr(code_tags._Reader, "_note", early)
    assert list(beginnings_that_differ(TRICKY, range(len(TRICKY))))


def test_what_follows_a_line_does_not_show_in_its_end() -> None:
    """The two examples by which tags were found to leak."""
    within, after = (syntax_tags(f"def f(x):\n    y = 1\n{rest}") for rest in ("    z = 2\n", "z = 2\n"))
    assert within["block"][:20].tolist() == after["block"][:20].tolist() == [0, 0, 0, *[1] * 17]
    assert (within["block"][24], after["block"][20]) == (1, 0)
    word, longer = (syntax_tags(f"{line}\n")["block"][:2] for line in ("if x: y", "iffy = 1"))
    assert word.tolist() == longer.tolist() == [0, 0]
    first, name = (syntax_tags(text)["block"] for text in ("match x:\n    case 1: y = 2\n", "match = 1\ny = 2\n"))
    assert first[:13].max() == name.max() == 0 and first[13:].min() == 1


@pytest.mark.parametrize("size", [1, 2, 3, 7])
def test_tokens_have_the_tags_of_what_they_stand_for(size: int) -> None:
    """Pieces of any size, cut without regard to the source, checked one by one."""
    text = inspect.getsource(functools.singledispatchmethod) + inspect.getsource(functools.lru_cache)
    tags = syntax_tags(text)
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


def test_a_part_of_a_character_has_the_tags_of_what_was_read_before() -> None:
    """The first byte of é may begin another character, which ends the name: the second one says."""
    text = "def dé(): pass\né = 1\n"
    starts = np.array([place for place, one in enumerate(text) for _ in one.encode()])
    found = token_tags(text, syntax_tags(text), starts, starts + 1)
    assert found["definition"].tolist()[4:8] == [1, 0, 1, 0]
    assert found["block"].tolist()[14:18] == [1, 1, 1, 0], "the last byte of é begins the line"
    assert token_tags("é", syntax_tags("é"), np.array([0, 0]), np.array([1, 1]))["block"].tolist() == [0, 0]


def test_all_of_the_library_that_is_read_here_is_followed_to_its_end() -> None:
    """Every statement of the tree has its number: nothing is taken for the end of a text before it."""
    for path in sorted(Path(inspect.getfile(ast)).parent.glob("json/*.py")):
        text = path.read_text(encoding="utf-8")
        assert syntax_tags(text)["block"].max() == from_tree(text)[0]["block"].max()


@pytest.mark.parametrize("text", SOURCES)
def test_parents_and_levels_are_those_of_the_tree(text: str) -> None:
    """At the first character of every simple statement, by the compound statements that the tree has around it."""
    parsed = ParsedSource(text, "a")
    tags = syntax_tags(text)
    number = seen = 0

    def walk(node: ast.AST, around: list[int]) -> None:
        nonlocal number, seen
        for child in ast.iter_child_nodes(node):
            own = around
            if text.startswith("\ufeff") and getattr(child, "lineno", 0) == 1:
                continue  # the tree counts no byte order mark
            if isinstance(child, BLOCKS):
                if not text.startswith("elif", parsed.offset(child.lineno, child.col_offset)):
                    number += 1
                    own = [*around, number]
            elif isinstance(child, ast.stmt):
                at = parsed.offset(child.lineno, child.col_offset)
                found = [int(tags[name][at]) for name in ("block", "parent", "grandparent", "level")]
                assert found == [*[0, 0, 0, *around][:-4:-1], len(around)]
                seen += len(around) > 1
            if not isinstance(child, ast.expr):
                walk(child, own)

    walk(parsed.tree, [])
    assert seen > 3


@pytest.mark.parametrize("text", SOURCES)
def test_a_head_is_the_first_line_of_its_block(text: str) -> None:
    """The lines of the tree: from a definition's keyword to what its body begins with."""
    parsed = ParsedSource(text, "a")
    tags = syntax_tags(text)
    definitions = [node for node in ast.walk(parsed.tree) if isinstance(node, DEFINITIONS)]
    for node in definitions:
        name = text.index(node.name, parsed.offset(node.lineno, node.col_offset) + 3)
        body = parsed.offset(node.body[0].lineno, node.body[0].col_offset)
        assert tags["head"][name] == tags["block"][name] > 0
        if node.body[0].lineno > node.lineno and not text[name:body].rstrip().endswith("\\"):
            assert tags["head"][body] == 0 or text[body] == "@"
    assert definitions
    assert set(tags["head"][tags["head"] > 0]) <= set(tags["block"])


def uses_by_hand(text: str) -> tuple[list[int], list[int]]:
    """`name` and `defined` at every character, by their definition: what was read, and the definitions before."""
    parsed = ParsedSource(text, "a")
    starts = set()
    for node in ast.walk(parsed.tree):
        if isinstance(node, DEFINITIONS):
            keyword = "class" if isinstance(node, ast.ClassDef) else "def"
            at = text.index(keyword, parsed.offset(node.lineno, node.col_offset)) + len(keyword)
            starts.add(text.index(node.name, at))
    numbers: dict[str, int] = {}
    name, defined = [0] * len(text), [0] * len(text)
    for place in range(len(text)):
        begin = place + 1
        while begin and (text[begin - 1].isalnum() or text[begin - 1] == "_"):
            begin -= 1
        word = text[begin : place + 1]
        if word and begin in starts:
            numbers.setdefault(word, len(numbers) + 1)
        if word and not word[0].isdecimal():
            name[place] = numbers.get(word, 0)
        before = place
        while before and (text[before - 1].isalnum() or text[before - 1] == "_"):
            before -= 1
        if before < place and before in starts:
            defined[place] = numbers[text[before:place]]
    return name, defined


def test_names_are_linked_to_what_followed_them_where_they_were_defined() -> None:
    """Character by character, on the library's own source, against the definition of both tags."""
    text = inspect.getsource(functools.singledispatchmethod) + inspect.getsource(functools.lru_cache)
    tags = syntax_tags(text)
    name, defined = uses_by_hand(text)
    assert tags["name"].tolist() == name and tags["defined"].tolist() == defined
    assert sum(map(bool, name)) > 50 and sum(map(bool, defined)) > 50


def test_a_call_is_linked_to_the_signature_of_its_name() -> None:
    text = "f(0)\ndef f(a, b=(1, 2)): return a\nclass G(f(3)): pass\nx.f(1, [g(2)], h)(3); G(4)\n"
    tags = syntax_tags(text)
    f, g = tags["name"][text.index("f(a")], tags["name"][text.index("G(f")]
    assert f and g and f != g

    def at(piece: str, offset: int = 0) -> tuple[int, int]:
        place = text.index(piece) + offset
        return int(tags["callee"][place]), int(tags["signature"][place])

    assert at("(0)") == (0, 0), "the definition is still to be read"
    assert at("a, b") == at("b=") == at("(1, 2", 1) == at("2))") == (f, f), "brackets without a name change nothing"
    assert at("return a") == at("(a, b", -1) == (0, 0)
    assert at("(f(3", 1) == (g, g) and at("3)):") == (f, 0) and at("): pass") == (g, g)
    assert at("(1, [", 1) == at(", h") == (f, 0) and at("2)]") == (0, 0) and at("3); G") == (0, 0)
    assert at("4)") == (g, 0)
