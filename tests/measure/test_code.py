"""Statements of code, counted by hand in a module that is written here, and by order in the parts themselves."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from measure.conftest import measured
from swapformer.measure.code import reachable, statements

SOURCE = '''
"""Not counted."""
from __future__ import annotations
import math

TABLE = {"not": "counted"}


def helper(x: Unnamed) -> Unnamed:       # 1
    """Not counted."""
    if x:                                 # 2
        return math.sqrt(x)               # 3
    return other(x)                       # 4


def other(x):                             # 1
    return x                              # 2


class Base:                               # 1
    size: int = 3                         # 2


class Part(Base):                         # 1
    """Not counted: names Unused."""

    def __init__(self, kind: Unused):     # 2
        self.kind: Unused = kind          # 3

    def forward(self, x):                 # 4
        y: Unused = helper(x); z = y      # 5, 6
        return z                          # 7


class Unused:
    pass


class Unnamed:
    pass
'''


@pytest.fixture
def room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """A module whose statements were counted by hand."""
    (tmp_path / "counted_room.py").write_text(SOURCE)
    monkeypatch.syspath_prepend(tmp_path)
    yield importlib.import_module("counted_room")
    sys.modules.pop("counted_room")


def test_what_a_class_names_is_counted_once_and_nothing_else_is(room: ModuleType) -> None:
    """By hand: Part 7, Base 2, helper 4, other 2. Annotations, docstrings and constants lead nowhere."""
    found = reachable([room.Part], ["counted_room"])
    counts = {each.__name__: statements(tree) for each, tree in found.items()}
    assert counts == {"Part": 7, "Base": 2, "helper": 4, "other": 2}


def test_code_outside_the_rooms_does_not_count(room: ModuleType) -> None:
    assert not reachable([room.Part], ["counted"]), "a package whose name begins alike is another one"
    assert not reachable([room.Part])


def test_parts_are_told_apart_and_shared_code_counts_once() -> None:
    found = measured("measure=code", "model/kernel=reference", "model/position=rope").metrics
    alone = sum(found[f"code/{name}"] for name in ("attention", "kernel", "position"))
    assert max(found["code/attention"], found["code/kernel"]) < found["code/all"] < alone
    assert measured("measure=code", "model/attention=linear").metrics["code/kernel"] == 0


def test_a_kernel_counts_with_the_kernels_that_it_holds() -> None:
    """The blocked kernel hands to the fused one what is no band, and the attention stays what it was."""
    window = ("measure=code", "model/pattern=window")
    fused, blocked = (measured(*window, f"model/kernel={name}") for name in ("sdpa", "blocked"))
    assert blocked.metrics["code/kernel"] > fused.metrics["code/kernel"]
    assert blocked.metrics["code/attention"] == fused.metrics["code/attention"]
    (names,) = (str(row[2]) for row in blocked.shapes["definitions"].rows if row[0] == "kernel")
    assert {"Blocked", "SDPA"} <= set(names.split(", "))


def test_alibi_has_less_code_than_rope_and_more_than_no_encoding() -> None:
    found = [measured("measure=code", f"model/position={name}") for name in ("none", "alibi", "rope")]
    none, alibi, rope = (each.metrics["code/position"] for each in found)
    assert all(set(each.exact) == set(each.metrics) for each in found), "a count is no sample"
    assert none < alibi < rope
