"""The nodes and keys that every composed configuration has, held against those of `conf/train.yaml`."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

from swapformer.catalogue import default_option, option, option_files, primary
from swapformer.errors import UsageError, quote
from swapformer.paths import conf_dir
from swapformer.results.config import leaves
from swapformer.targets import find
from swapformer.training.assemble import SLOTS
from swapformer.yaml_reader import read_yaml

LARGEST = 2**63
"""Whole numbers lie below it: tensors, seeds and files hold 64 bits."""
MADE = ("optim", "schedule")
"""Nodes beside the slots of the model of which an object is made, as of `task`, which may be absent."""
PRIVATE = ("_target_", "_partial_", "_convert_")
"""Keys of a part's node that are no settings of it."""


def require_nodes(config: Mapping[str, Any]) -> None:
    """Refuse a configuration that lacks a key of `conf/train.yaml`, or holds a value where that has a node.

    What a part says of its own settings is asked later, when it is made; here is what is read before.

    Raises:
        UsageError: for the first such key.
    """
    _require_names(config)
    for key, default in _expected():
        value = _at(config, key)
        if isinstance(default, dict) and not isinstance(value, Mapping):
            raise UsageError(f"`{key}` must hold settings by name, but it is {quote(value)}; leave it as it is")
        if isinstance(default, list) and not isinstance(value, list):
            word = value if isinstance(value, str) and re.fullmatch(r"[\w./-]{1,40}", value) else "…"
            raise UsageError(f"`{key}` must be a list, but it is {quote(value)}; write {key}=[{word}]")
    if not isinstance(config["runs_dir"], str) or not config["runs_dir"].strip() or "\0" in config["runs_dir"]:
        raise UsageError(f"`runs_dir` must be the path of a folder, but it is {quote(config['runs_dir'])}")
    for key in MADE:
        _require_target(_at(config, key), key)
    _at(config, "optim.lr")
    for slot in SLOTS:
        if slot != "extension":
            _require_part(_at(config, f"model.{slot}"), slot)
    for key, value in whole_numbers(config):
        if not -LARGEST <= value < LARGEST:
            raise UsageError(f"`{key}` must be a number of at most 64 bits, but it is {quote(value)}")


def _require_names(node: Any, path: str = "") -> None:
    """Refuse settings of a class whose names are no texts, such as a number in a file of options."""
    pairs: Any = node.items() if isinstance(node, Mapping) else enumerate(node) if isinstance(node, list) else ()
    for name, value in pairs:
        if isinstance(node, Mapping) and "_target_" in node and not isinstance(name, str):
            raise UsageError(f"`{path}` must hold settings by name, but one is named {quote(name)}; take it out")
        _require_names(value, f"{path}.{name}" if path else str(name))


def _expected() -> Iterator[tuple[str, Any]]:
    """Every dotted key that a configuration has whatever is chosen, with its value in `conf/train.yaml`."""
    primary_config = primary()
    for entry in primary_config["defaults"]:
        group = next(iter(entry)) if isinstance(entry, dict) else ""
        if group and " " not in group and group.partition("/")[0] not in ("model", "task"):
            yield group.replace("/", "."), {}
    yield from _below({key: value for key, value in primary_config.items() if key not in ("defaults", "hydra")}, "")
    yield from ((f"trainer.{key}", None) for key in _settings_of_trainer())
    yield from ((f"model.{size}", None) for size in ("d_model", "num_layers", "num_heads"))
    yield "task", {}


@lru_cache
def _settings_of_trainer() -> tuple[str, ...]:
    """The keys of the default option, which every option has."""
    (name,) = (entry["trainer"] for entry in primary()["defaults"] if isinstance(entry, dict) and "trainer" in entry)
    return tuple(read_yaml(option_files(conf_dir())["trainer"][name]))


def _below(node: Mapping[str, Any], path: str) -> Iterator[tuple[str, Any]]:
    for name, value in node.items():
        key = f"{path}.{name}" if path else str(name)
        yield key, value
        if isinstance(value, dict):
            yield from _below(value, key)


def _at(config: Mapping[str, Any], key: str) -> Any:
    """The value of a dotted key. Raises UsageError where it is not there."""
    node: Any = config
    for depth, name in enumerate(words := key.split(".")):
        if not isinstance(node, Mapping):
            above = ".".join(words[:depth])
            raise UsageError(f"`{above}` must hold settings by name, but it is {quote(node)}; leave it as it is")
        if name not in node:
            raise UsageError(f"`{key}` must be there, but it was taken out; leave out ~{key}, or give a value")
        node = node[name]
    return node


def _require_target(node: Any, key: str) -> None:
    """Refuse a node that names no class."""
    if not isinstance(node, Mapping) or not isinstance(node.get("_target_"), str):
        given = quote(dict(node) if isinstance(node, Mapping) else node)
        raise UsageError(f"`{key}` must name a class by `_target_`, but it is {given}; choose an option of the group")


def _require_part(node: Any, slot: str) -> None:
    """Refuse a node that makes no part of a slot."""
    if not isinstance(node, Mapping):
        raise UsageError(f"`model.{slot}` must be chosen as model/{slot}=…, but it is {quote(node)}.")
    _require_target(node, f"model.{slot}")
    if node.get("_partial_") is not True:
        raise UsageError(f"`model.{slot}._partial_` must be true, since parts are made layer by layer; keep it")
    if wrong := [key for key in node if str(key).startswith("_") and key not in PRIVATE]:
        raise UsageError(f"`model.{slot}` must hold settings of its part, but {quote(wrong[0])} is not one; remove it")
    found, base = find(node["_target_"]), _base(slot)
    if (
        inspect.isclass(found)
        and found.__module__.startswith(("swapformer.", "torch."))
        and not issubclass(found, base)
    ):
        raise UsageError(
            f"`model.{slot}` must be a {base.__name__}, but {found.__name__} is not; choose an option of model/{slot}"
        )


@lru_cache
def _base(slot: str) -> type:
    """The class that the parts of a slot inherit from, found from the default option's."""
    found = find(option(slot, default_option(slot))["_target_"])
    lines = [each for each in found.__mro__ if each.__module__.startswith(f"swapformer.model.{slot}")]
    return lines[-1] if lines else object


def whole_numbers(node: Any, path: str = "") -> Iterator[tuple[str, int]]:
    """Every whole number of a configuration, by its dotted key."""
    return ((key, value) for key, value in leaves(node, path) if isinstance(value, int))
