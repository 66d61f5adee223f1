"""Every preset composes, is possible, and is what it says."""

from __future__ import annotations

from pathlib import Path

import pytest

from swapformer.paths import conf_dir
from swapformer.study.config.compose import check, compose

PRESETS = sorted(path.stem for path in (conf_dir() / "preset").glob("*.yaml"))
SMALL = {"nanogpt_cpu": [f"task.source.path={__file__}", "task.block=16"]}
"""What a preset lacks, or what makes it quick."""
LIBRARY = [
    "task/source=files",
    f"task.source.path={Path(__file__).parents[2]}/*/*.py",
    "task.tokeniser.vocab_size=500",
]


def of(preset: str, *overrides: str) -> dict[str, object]:
    own = SMALL.get(preset, LIBRARY if preset in ("bert", "t5") else [])
    config = compose([f"+preset={preset}", *own, *overrides])
    check(config)
    return config


@pytest.mark.parametrize("preset", PRESETS)
def test_is_possible(preset: str) -> None:
    assert of(preset)["model"]


@pytest.mark.parametrize("size", ["tiny", "mini", "small", "medium", "base", "large"])
def test_bert_comes_in_the_sizes_of_its_family(size: str) -> None:
    model = of("bert", f"model/size={size}")["model"]
    assert isinstance(model, dict)
    assert model["topology"]["_target_"].endswith("Encoder")
    assert model["pattern"]["_target_"].endswith("Full")


@pytest.mark.parametrize("preset", ["mqar", "induction"])
def test_the_depth_of_what_one_layer_cannot_do_can_be_changed(preset: str) -> None:
    two, one = of(preset), of(preset, "model.num_layers=1")
    assert two["model"] == {**one["model"], "num_layers": 2}  # type: ignore[dict-item]
    assert {key: two[key] for key in two if key != "model"} == {key: one[key] for key in one if key != "model"}


def test_addition_is_written_either_way_on_the_same_budget() -> None:
    plain, reversed_ = of("addition"), of("addition", "task=addition_reversed")
    assert plain["task"] == {**reversed_["task"], "reversed": False}  # type: ignore[dict-item]
    same = ("model", "budget", "optim", "schedule", "eval")
    assert [plain[key] for key in same] == [reversed_[key] for key in same]
