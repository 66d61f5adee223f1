"""How messages show what a user gave, wherever they are printed."""

from __future__ import annotations

import gc
import io
import sys
from typing import Any

import pytest

from swapformer.console import few_collections, printable_output, terminal
from swapformer.errors import QUOTED, UsageError, quote
from swapformer.train import _check_options


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


def test_output_goes_to_any_encoding_and_to_a_closed_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding="latin1"))
    with printable_output():
        print("Δ −1 é")
        sys.stdout.flush()
    assert raw.getvalue() == "? ?1 é\n".encode("latin1")
    monkeypatch.setattr(sys, "stdout", None)
    with printable_output():
        print("to nobody")


def test_a_terminal_of_no_columns_is_taken_for_a_usual_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """S11 of the review: a report printed nothing."""
    monkeypatch.setenv("COLUMNS", "0")
    assert terminal().width == 80
    monkeypatch.setenv("COLUMNS", "100")
    assert terminal().width == 100
    monkeypatch.delenv("COLUMNS")
    assert terminal().width == 160  # a pipe, in which no name is cut


def test_the_command_of_a_training_may_have_no_words() -> None:
    _check_options([])
    with pytest.raises(UsageError, match="unknown option --mutlirun"):
        _check_options(["--mutlirun"])


def test_the_collector_looks_as_often_after_a_command_as_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gc, "get_threshold", lambda: (700, 10, 10))
    told: list[tuple[int, ...]] = []
    monkeypatch.setattr(gc, "set_threshold", lambda *numbers: told.append(numbers))
    with pytest.raises(UsageError), few_collections():
        raise UsageError("no")
    assert told[0][0] > 10_000 and told[1] == (700, 10, 10)
