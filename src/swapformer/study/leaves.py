"""A configuration as its leaves: what two of them differ in, and whether one says something."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

ABSENT = "(absent)"
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def read_config(folder: Path) -> dict[str, Any]:
    """The resolved configuration of the trial in `folder`; empty where it left none that can be read."""
    try:
        found = yaml.load((folder / "config.yaml").read_bytes(), Loader=_LOADER)
    except (OSError, ValueError, yaml.YAMLError):
        return {}
    return found if isinstance(found, dict) else {}


def leaves(node: object, name: str = "") -> Iterator[tuple[str, Any]]:
    """`{"model": {"layers": [2]}}` → `("model.layers.0", 2)`; an empty mapping or list is a leaf."""
    pairs = node.items() if isinstance(node, Mapping) else enumerate(node) if isinstance(node, list) else ()
    if not pairs or not node:
        yield name, node
        return
    for key, value in pairs:
        yield from leaves(value, f"{name}.{key}" if name else str(key))


def differences(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Leaf → its value in `one` and in `other`, for every leaf in which they differ, in the order of the files."""
    first, second = dict(leaves(one)), dict(leaves(other))
    names = dict.fromkeys([*first, *second])
    pairs = {name: (first.get(name, ABSENT), second.get(name, ABSENT)) for name in names}
    return {name: pair for name, pair in pairs.items() if pair[0] != pair[1] or type(pair[0]) is not type(pair[1])}


def says(folder: Path, text: str) -> bool:
    """Whether the configuration of the trial in `folder` holds `text`, or, for `key=value`, has that leaf.

    The file's text is searched first: reading the YAML of ten thousand trials takes a hundred times as long.
    """
    try:
        raw = (folder / "config.yaml").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    key, equals, value = text.partition("=")
    if not equals:
        return text in raw
    if f"{key.rpartition('.')[2]}:" not in raw or value not in raw:
        return False
    wanted = yaml.load(value, Loader=_LOADER)
    return any(name == key and found == wanted for name, found in leaves(read_config(folder)))
