"""A trial's configuration comes back as it was written, is compared leaf by leaf, and is searched."""

from __future__ import annotations

from pathlib import Path

import pytest

from swapformer.results.config import ABSENT, differences, leaves, matches, read_config, write_config


def test_a_config_comes_back_as_it_was_written_and_a_damaged_one_is_empty(tmp_path: Path) -> None:
    config = {"model": {"layers": [{"at": "0:2"}], "bias": None}, "optim": {"lr": 3e-4, "name": "1e-3"}, "seed": 0}
    write_config(tmp_path, config)
    assert read_config(tmp_path) == config and list(read_config(tmp_path)) == list(config)
    (tmp_path / "config.yaml").write_text("model: [")
    assert read_config(tmp_path) == read_config(tmp_path / "nowhere") == {}


def test_a_plain_list_is_one_leaf_where_it_is_asked_for_whole() -> None:
    config = {"layers": [{"num_heads": 2}], "betas": [0.9, 0.95], "tags": [], "probes": {}}
    assert dict(leaves(config, plain_lists_whole=True)) == {
        "layers.0.num_heads": 2, "betas": [0.9, 0.95], "tags": [],
    }  # fmt: skip


def test_two_configs_differ_in_leaves() -> None:
    one = {"model": {"d_model": 64, "layers": [{"at": 0}], "bias": True}, "seed": 0, "tags": []}
    other = {"model": {"d_model": 64, "layers": [{"at": 1}, {"at": 2}], "bias": 1}, "seed": 0, "tags": {}}
    assert differences(one, other) == {
        "model.layers.0.at": (0, 1),
        "model.bias": (True, 1),
        "tags": ([], {}),
        "model.layers.1.at": (ABSENT, 2),
    }
    assert differences(one, one) == {}
    assert dict(leaves(one)) == {
        "model.d_model": 64, "model.layers.0.at": 0, "model.bias": True, "seed": 0, "tags": [],
    }  # fmt: skip


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("ALiBi", True),
        ("num_heads: 4", True),
        ("model.num_heads=4", True),
        ("model.num_heads=2", False),
        ("num_heads=4", False),
        ("model.bias=true", True),
        ("model.bias=1", False),
        ("Rotary", False),
        ("optim.lr=0.01", True),
        ("optim.lr=1e-2", True),
        ("optim.lr=.01", True),
        ("optim.lr=0.1", False),
        ("optim.eps=1e-8", True),
        ("optim.betas.1=0.95", True),
        ("optim.betas.1=[", False),
        ("note=a text", True),
        ("none=null", True),
    ],
)
def test_a_config_is_searched_for_a_text_or_a_leaf(tmp_path: Path, text: str, found: bool) -> None:
    optim = "optim:\n  lr: 0.01\n  eps: 1e-8\n  betas:\n  - 0.9\n  - 0.95\n"
    model = "model:\n  position:\n    _target_: x.ALiBi\n  num_heads: 4\n  bias: true\n"
    (tmp_path / "config.yaml").write_text(f"{model}{optim}note: a\n  text\nnone: null\n")
    assert matches(tmp_path, text) is found
    assert not matches(tmp_path / "nowhere", text)
