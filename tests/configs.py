"""Small configurations and wide weights for the tests of models."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import torch
import yaml
from omegaconf import OmegaConf
from torch import nn

from swapformer.catalogue import option_files
from swapformer.paths import conf_dir
from swapformer.study.config import compose as study_compose
from swapformer.study.config.choices import composition
from swapformer.training.assemble import build_model, count_parameters

SMALL = ["model.num_layers=2", "model.d_model=32", "model.num_heads=4", "model.max_len=320"]


def small(overrides: Sequence[str] = ()) -> dict[str, Any]:
    """The `model` and `seed` of a resolved configuration with sizes that are quick to examine."""
    return copy.deepcopy(_composed(tuple(overrides)))


@lru_cache(maxsize=1024)
def _composed(overrides: tuple[str, ...]) -> dict[str, Any]:
    with composition([*SMALL, *overrides]) as found:
        config = OmegaConf.to_container(found, resolve=True)
    assert isinstance(config, dict)
    return {"model": config["model"], "seed": config["seed"]}


def every_part() -> list[tuple[str, str]]:
    """(slot, option) for every YAML under conf/model, sizes aside."""
    slots = {group.partition("/")[2]: files for group, files in option_files(conf_dir()).items() if "model/" in group}
    return [(slot, option) for slot, files in slots.items() if slot != "size" for option in files]


def accepted(*overrides: str) -> dict[str, Any]:
    """The configuration that overrides make: no rule refuses it, it holds the options they name, its model is made."""
    config = study_compose.compose(overrides)
    study_compose.check(config)
    for slot, _, option in (override.removeprefix("model/").partition("=") for override in overrides):
        file = conf_dir() / "model" / slot / f"{option}.yaml"
        if file.is_file():
            assert config["model"][slot]["_target_"] == yaml.safe_load(file.read_text("utf-8"))["_target_"]
    assert count_parameters(build_model(config, study_compose.task_of(config).interface))["total"] > 0
    return config


def wide(part: nn.Module) -> Any:
    """The part in float64 with weights from N(0, 1), so that each of its terms shows."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in part.double().parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator, dtype=torch.float64))
    return part
