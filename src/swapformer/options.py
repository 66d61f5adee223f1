"""Options of the model's slots as their YAML files state them, read without Hydra."""

from __future__ import annotations

import copy
from functools import lru_cache
from typing import Any

import yaml

from swapformer.paths import conf_dir

Node = dict[str, Any]


NONE = "[]"
"""No option, for a slot that takes a list of them: `model/extension=[]`."""


def takes_list(slot: str) -> bool:
    """Whether a slot takes any number of options, whose settings `model.<slot>` holds by their names."""
    return isinstance(_defaults()[f"model/{slot}"], list)


def default_option(slot: str) -> str:
    """The name of the option that conf/train.yaml chooses for a slot."""
    chosen = _defaults()[f"model/{slot}"]
    return NONE if isinstance(chosen, list) else str(chosen)


def option(slot: str, name: str) -> Node:
    """What `model.<slot>` holds with an option, as its own file states it, without what it chooses by `defaults`."""
    return {} if name == NONE else filled(slot, name, copy.deepcopy(_read(slot, name)))


def filled(slot: str, name: str, node: Node) -> Node:
    """What `model.<slot>` holds when a part with these settings, called `name`, is all there is."""
    return {name: node} if takes_list(slot) else node


def options(slot: str) -> dict[str, Node]:
    """Name → settings of every option of a slot that is whole in its own file."""
    names = sorted(path.stem for path in (conf_dir() / "model" / slot).glob("*.yaml"))
    return {name: option(slot, name) for name in names if "defaults" not in _read(slot, name)}


@lru_cache
def _defaults() -> dict[str, Any]:
    chosen = yaml.safe_load((conf_dir() / "train.yaml").read_text(encoding="utf-8"))["defaults"]
    return {str(key): name for entry in chosen if isinstance(entry, dict) for key, name in entry.items()}


@lru_cache(maxsize=512)
def _read(slot: str, name: str) -> Node:
    node = yaml.safe_load((conf_dir() / "model" / slot / f"{name}.yaml").read_text(encoding="utf-8"))
    assert isinstance(node, dict), f"model/{slot}={name} is a mapping"
    return node
