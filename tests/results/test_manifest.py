"""A manifest is written as it always was, comes back as the same object, and knows which arms could not be built."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from swapformer.errors import UsageError
from swapformer.results.arms import UNITS, UNITS_IN_FULL, ArmDifference, Cell, MatchedSize, Shape
from swapformer.results.manifest import Axis, Manifest, read_manifest, write_manifest
from swapformer.results.tuning import Choice, Refused, Tried, Tuning

WRITTEN: dict[str, Any] = {
    "schema_version": 1,
    "name": "heads",
    "scale": "cpu",
    "question": "How many?",
    "baseline": "a",
    "metrics": ["val/loss"],
    "arms": {"a": [], "b": ["model.num_heads=2"], "c": ["model.num_heads=7"]},
    "axis": {"key": "model.num_heads", "values": {"a": 1, "b": 2}},
    "seeds": [0, 1],
    "claims": [{"text": "b is better", "better": {"arm": "b", "than": "a", "metric": "val/loss", "margin": 0}}],
    "looks": [1, 2],
    "conditions": {"size=s": {"size": "s"}, "size=m": {"size": "m"}},
    "cells": [
        {"arm": "a", "condition": "size=s", "seed": 0, "trial": "00"},
        {"arm": "b", "condition": "size=m", "seed": 1, "trial": "01"},
    ],
    "impossible": [
        {"arm": "c", "condition": "size=s", "reason": "7 divides nothing"},
        {"arm": "c", "condition": "size=m", "reason": "7 divides nothing else"},
        {"arm": "b", "condition": "size=s", "reason": "too small"},
    ],
    "tuning": {
        "metric": "val/loss",
        "keys": ["optim.lr"],
        "seeds": [9],
        "tried": [{"arm": "a", "condition": "size=s", "values": {"optim.lr": "1e-3"}, "trials": ["02"]}],
        "refused": [{"arm": "b", "condition": "size=m", "values": {"optim.lr": "1"}, "reason": "too fast"}],
        "chosen": [
            {
                "arm": "a", "condition": "size=s", "values": {"optim.lr": "1e-3"}, "edges": ["optim.lr"],
                "diverged": False,
            }
        ],
    },
    "fairness": [
        {
            "arm": "b", "condition": "size=m", "changes": [["model.num_heads", "1", "2"]], "beyond": ["model.bias"],
            "shapes": [["layers.*.q", [4, 4], None, 2]], "flops": None,
            "match": {"measure": "params", "key": "model.ffn.width", "value": 17, "cost": 101, "target": 100},
        }
    ],
    "command": "swapformer study heads",
    "commit": None,
    "longest_trained": 64,
    "shared_config": {"model": {"num_heads": 1}},
}  # fmt: skip
"""What a study wrote before a manifest had a class."""


@pytest.fixture
def study(tmp_path: Path) -> Path:
    (tmp_path / "manifest.json").write_text(json.dumps(WRITTEN, indent=1) + "\n")
    return tmp_path


def test_a_manifest_that_is_read_is_written_again_byte_by_byte(study: Path) -> None:
    write_manifest(study, read_manifest(study))
    before = (study / "manifest.json").read_bytes()
    content = json.loads(before)
    assert content.pop("ledger")["series"] == [] and content == WRITTEN, "the ledger is all that came with the class"
    write_manifest(study, read_manifest(study))
    assert (study / "manifest.json").read_bytes() == before


def test_one_of_a_newer_version_keeps_its_place_and_one_of_no_version_is_set_aside(study: Path) -> None:
    manifest, path = read_manifest(study), study / "manifest.json"
    newer = json.dumps({**WRITTEN, "schema_version": 2})
    path.write_text(newer)
    with pytest.raises(UsageError, match="of a newer swapformer"):
        write_manifest(study, manifest)
    assert path.read_text() == newer
    path.write_text(json.dumps({**WRITTEN, "schema_version": "x"}))
    write_manifest(study, manifest)
    assert read_manifest(study).ledger.unknown and (study / "manifest.json.corrupt-1").exists()


def test_every_field_is_read(study: Path) -> None:
    found = read_manifest(study)
    assert found.axis == Axis("model.num_heads", {"a": 1, "b": 2})
    assert found.cells == (Cell("a", 0, "00", "size=s"), Cell("b", 1, "01", "size=m"))
    assert found.tuning == Tuning(
        "val/loss", ("optim.lr",), (9,),
        (Tried("a", "size=s", {"optim.lr": "1e-3"}, ("02",)),),
        (Choice("a", "size=s", {"optim.lr": "1e-3"}, ("optim.lr",)),),
        (Refused("b", "size=m", {"optim.lr": "1"}, "too fast"),),
    )  # fmt: skip
    (entry,) = found.fairness
    assert math.isnan(entry.flops) and entry.match is not None
    assert replace(entry, flops=0.0) == ArmDifference(
        "b", "size=m", (("model.num_heads", "1", "2"),), ("model.bias",), (Shape("layers.*.q", (4, 4), None, 2),), 0.0,
        MatchedSize("params", "model.ffn.width", 17, 101, 100),
    )  # fmt: skip
    assert entry.match.text == "model.ffn.width=17 gives 101 parameters, +1 % the baseline's 100"


def test_an_arm_is_impossible_where_it_is_so_in_every_condition_that_is_looked_at(study: Path) -> None:
    found = read_manifest(study)
    assert found.impossible == {"c": "7 divides nothing else"} and found.possible == ("a", "b")
    assert found.at("size=s").impossible == {"c": "7 divides nothing", "b": "too small"}
    assert found.at("size=m").possible == ("a", "b")


def test_an_arm_that_stands_among_the_impossible_alone_is_an_arm(tmp_path: Path) -> None:
    manifest = Manifest("x", "a", {"a": ()}, (0,), ("val/loss",), (), impossible_at={("z", ""): "no"})
    write_manifest(tmp_path / "x", manifest)
    assert list(read_manifest(tmp_path / "x").arms) == ["a", "z"]
    assert json.loads((tmp_path / "x" / "manifest.json").read_text())["conditions"] == {}, "there is no grid"


def test_units_are_those_of_the_terminal_with_what_they_are_counted_of() -> None:
    assert UNITS == {"params": "parameters", "flops": "FLOP", "kv_bytes": "bytes of KV cache",
                     "pairs": "attended pairs"}  # fmt: skip
    assert UNITS_IN_FULL == {
        "params": "parameters",
        "flops": "FLOP of a training sequence",
        "kv_bytes": "bytes of KV cache of a sequence",
        "pairs": "attended pairs of a training sequence",
    }
