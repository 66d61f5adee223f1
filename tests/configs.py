"""Small configurations for the tests of models."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

from swapformer.catalogue import option_files
from swapformer.paths import conf_dir

SMALL = ["model.num_layers=2", "model.d_model=32", "model.num_heads=4", "model.max_len=320"]


def small(overrides: Sequence[str] = ()) -> dict[str, Any]:
    """The `model` and `seed` of a resolved configuration with sizes that are quick to examine."""
    return copy.deepcopy(_composed(tuple(overrides)))


@lru_cache(maxsize=1024)
def _composed(overrides: tuple[str, ...]) -> dict[str, Any]:
    with initialize_config_dir(str(conf_dir()), version_base="1.3"):
        config = OmegaConf.to_container(compose("train", [*SMALL, *overrides]), resolve=True)
    assert isinstance(config, dict)
    return {"model": config["model"], "seed": config["seed"]}


def every_part() -> list[tuple[str, str]]:
    """(slot, option) for every YAML under conf/model, sizes aside."""
    slots = {group.partition("/")[2]: files for group, files in option_files(conf_dir()).items() if "model/" in group}
    return [(slot, option) for slot, files in slots.items() if slot != "size" for option in files]
