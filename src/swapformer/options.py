"""Options of the model's slots as their YAML files state them, read without Hydra."""

from __future__ import annotations

import copy
from functools import lru_cache
from typing import Any

import yaml

from swapformer.paths import conf_dir

Node = dict[str, Any]


def default_option(slot: str) -> str:
    """The name of the option that conf/train.yaml chooses for a slot."""
    return _defaults()[f"model/{slot}"]


def option(slot: str, name: str) -> Node:
    """The settings of an option as its own file states them; one whose parts are chosen by `defaults` lacks those."""
    return copy.deepcopy(_read(slot, name))


def options(slot: str) -> dict[str, Node]:
    """Name → settings of every option of a slot that is whole in its own file."""
    names = sorted(path.stem for path in (conf_dir() / "model" / slot).glob("*.yaml"))
    nodes = {name: option(slot, name) for name in names}
    return {name: node for name, node in nodes.items() if "defaults" not in node}


@lru_cache
def _defaults() -> dict[str, str]:
    chosen = yaml.safe_load((conf_dir() / "train.yaml").read_text(encoding="utf-8"))["defaults"]
    return {str(key): str(name) for entry in chosen if isinstance(entry, dict) for key, name in entry.items()}


@lru_cache(maxsize=512)
def _read(slot: str, name: str) -> Node:
    node = yaml.safe_load((conf_dir() / "model" / slot / f"{name}.yaml").read_text(encoding="utf-8"))
    assert isinstance(node, dict), f"model/{slot}={name} is a mapping"
    return node
