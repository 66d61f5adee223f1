"""Every preset composes, is possible, and is what it says."""

from __future__ import annotations

from pathlib import Path

import pytest

from swapformer.paths import conf_dir
from swapformer.study.config import check, compose

PRESETS = sorted(path.stem for path in (conf_dir() / "preset").glob("*.yaml"))
SMALL = {"nanogpt_cpu": [f"task.source.path={__file__}", "task.block=16"]}
"""What a preset lacks, or what makes it quick."""
LIBRARY = [
    "task/source=files",
    f"task.source.path={Path(__file__).parents[1]}/*/*.py",
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
