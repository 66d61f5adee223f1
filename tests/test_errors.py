"""How messages show what a user gave."""

from __future__ import annotations

from typing import Any

from swapformer.errors import QUOTED, quote


def test_a_value_is_quoted_as_python_writes_it():
    for value in ("a 'b'", 1.5, None, True, [1, "x"], {"a": [1], 2: (3,)}, (1, 2), b"x", float("nan"), [], ()):
        assert quote(value) == repr(value)


def test_a_long_value_is_cut_and_says_so():
    for value in ("x" * 10_000, list(range(10_000)), 10**5000, {str(i): i for i in range(999)}):
        assert len(quote(value)) <= QUOTED
        assert quote(value).endswith(("…", "digits"))


def test_control_and_bidirectional_characters_are_escaped():
    assert quote("\x1b[31mred\x07") == r"'\x1b[31mred\x07'"
    assert quote("abc\u202edef") == r"'abc\u202edef'"


def test_a_value_that_is_huge_only_when_it_is_written_out_is_quoted_at_once():
    bomb: Any = "lol"
    for _ in range(60):  # 2^60 words
        bomb = [bomb, bomb]
    assert len(quote(bomb)) == QUOTED
    nest: Any = []
    for _ in range(5000):  # deeper than Python's own repr can go
        nest = [nest]
    assert quote(nest).startswith("[[[[")
