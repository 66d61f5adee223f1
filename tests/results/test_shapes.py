"""Shapes come back as they were written, and what does not fit together is refused at the door or named."""

from __future__ import annotations

import json
import math
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from swapformer.results.artifacts import Artifact, has_artifact, read_artifacts, settings_key, write_artifact
from swapformer.results.files import CorruptFile
from swapformer.results.shapes import (
    KINDS,
    AttentionMaps,
    Curve,
    Histogram,
    Matrix,
    Profile,
    Published,
    Shape,
    Table,
    from_json,
    to_json,
)

SHAPES: list[Shape] = [
    Profile("t", "c", "y", "nats", ["1", "2"], ["init", "end"], [[1.0, math.nan], [2.0, 3.0]], log=True),
    Curve(
        "t", "c", "x", "y", [1, 2.5], {"": [1.0, None]}, True, True, True, {"2": 2.0}, [Published("P 2020", 1.0, 2.0)],
        ["a", "b"], {"": [3, 4]}, {"trained": 2.0}, per_seed=True,
    ),
    Matrix("t", "c", ["r"], ["a", "b"], [[0.5, math.inf]], 0.0, None, "share", per_seed=True),
    Histogram("t", "c", "x", [0.0, 1.0, 2.0], {"": [3, 4]}),
    AttentionMaps("t", "c", ["<a>", "b"], ["q"], {"layer 1 head 1": [[0.25, 0.75]]}),
    Table("t", "c", ["name", "n"], [["a", 1.5], ["b", None]]),
]  # fmt: skip


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: type(shape).__name__)
def test_a_shape_comes_back_as_it_was_written(shape: Shape) -> None:
    text = json.dumps(to_json(shape), allow_nan=False)
    assert from_json(json.loads(text), "x") == shape
    assert {type(each) for each in SHAPES} == set(KINDS.values())


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: type(shape).__name__)
def test_every_field_of_another_type_is_named(shape: Shape) -> None:
    for each in fields(shape):
        damaged = to_json(shape) | {each.name: object()}
        with pytest.raises(CorruptFile, match=rf"x\.{each.name}"):
            from_json(damaged, "x")


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ([], "`x` must be a mapping"),
        ({"shape": "matrx"}, "`x` has the unknown shape 'matrx'; did you mean 'matrix'"),
        ({"shape": ["curve"]}, "unknown shape"),
        ({"shape": "table", "title": "t", "caption": "c", "columns": ["a"]}, "it lacks `x.rows`"),
        (to_json(SHAPES[2]) | {"rows": ["a", "b"]}, "the rows of the Matrix 't' must number 2, but number 1"),
        (to_json(SHAPES[3]) | {"edges": [1.0]}, "the edges of '' of the Histogram 't' must number 3, but number 1"),
    ],
    ids=repr,
)
def test_what_is_no_shape_is_named(value: Any, problem: str) -> None:
    with pytest.raises(CorruptFile, match=problem):
        from_json(value, "x")


def test_a_probe_whose_numbers_do_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match="the layers of row 2 of the Profile 't' must number 2, but number 1"):
        Profile("t", "c", "y", "", ["1", "2"], ["init", "end"], [[1.0, 2.0], [1.0]])
    with pytest.raises(ValueError, match="the keys of row 1"):
        AttentionMaps("t", "c", ["a", "b"], None, {"h": [[1.0], [1.0, 2.0]]})


def test_a_damaged_shape_costs_neither_the_metrics_nor_the_other_shapes(tmp_path: Path) -> None:
    shapes: dict[str, Shape] = {"sound": SHAPES[1], "cut": SHAPES[2]}
    write_artifact(tmp_path, "x", Artifact({}, {"probe/x": 1.0}, shapes))
    path = tmp_path / "artifacts" / f"x.{settings_key({})}.json"
    raw = json.loads(path.read_text())
    raw["shapes"]["cut"]["values"] = "many"
    path.write_text(json.dumps(raw))
    problems: list[str] = []
    found = read_artifacts(tmp_path, problems)["x"]
    assert found.metrics == {"probe/x": 1.0} and dict(found.shapes) == {"sound": SHAPES[1]}
    assert len(problems) == 1 and "`shapes.cut.values` must be a list, but is 'many'" in problems[0]
    assert not has_artifact(tmp_path, "x", {}), "so it is measured again"
