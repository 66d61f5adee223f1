"""The resolved configuration of a trial, `config.yaml`: its leaves, and what two of them differ in."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from swapformer.errors import UsageError, cut
from swapformer.results.files import CorruptFile, read_file, write_atomic
from swapformer.yaml_reader import StoredLoader, parse_yaml, reason

ABSENT = "(absent)"
"""Stands for a leaf that only the other configuration has."""
FILLED = ("seed", "out", "checkpoint")
"""Placeholders of a command that its trial fills: the seed, an empty folder, and one that an interruption leaves."""
_DUMPER: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


def config_path(folder: Path) -> Path:
    """The configuration of the trial in `folder`."""
    return folder / "config.yaml"


def write_config(folder: Path, config: Mapping[str, Any]) -> None:
    """Store the resolved configuration of the trial in `folder`, atomically."""
    write_atomic(config_path(folder), yaml.dump(config, Dumper=_DUMPER, sort_keys=False))


def read_config(folder: Path) -> dict[str, Any]:
    """The resolved configuration of the trial in `folder`; empty where it left none that can be read."""
    try:
        return require_config(folder)
    except UsageError:
        return {}


def require_config(folder: Path) -> dict[str, Any]:
    """The resolved configuration of the trial in `folder`. Raises UsageError where there is none that can be read."""
    path = config_path(folder)
    try:
        found = parse_yaml(read_file(path), StoredLoader)
        if isinstance(found, dict) and found:
            return found
        why = "it is no mapping"
    except FileNotFoundError:
        why = "there is none"
    except (CorruptFile, ValueError, TypeError, yaml.YAMLError) as error:
        why = cut(reason(error))
    raise UsageError(f"trial {folder.name} has no {path.name} that can be read: {why}; train it again")


@contextmanager
def built_from(folder: Path) -> Iterator[None]:
    """Errors within, where the stored configuration of a trial is used, become a UsageError: the file is damaged."""
    try:
        yield
    except UsageError:
        raise
    except (LookupError, TypeError, ValueError, AttributeError, OverflowError, AssertionError, RuntimeError) as error:
        why = cut(f"{type(error).__name__}: {error}")
        raise UsageError(f"the configuration of trial {folder.name} is damaged: {why}; train it again") from error


def leaves(node: object, name: str = "", *, plain_lists_whole: bool = False) -> Iterator[tuple[str, Any]]:
    """`{"model": {"layers": [2]}}` → `("model.layers.0", 2)`; an empty mapping or list is a leaf.

    With `plain_lists_whole` a list without mappings is one leaf, `("model.layers", [2])`, and an empty mapping is none.
    """
    if isinstance(node, Mapping) and (node or plain_lists_whole):
        pairs: Iterable[tuple[Any, Any]] = node.items()
    elif isinstance(node, list) and node and (not plain_lists_whole or any(isinstance(v, Mapping) for v in node)):
        pairs = enumerate(node)
    else:
        yield name, node
        return
    for key, value in pairs:
        yield from leaves(value, f"{name}.{key}" if name else str(key), plain_lists_whole=plain_lists_whole)


def differences(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Leaf → its value in `one` and in `other`, for every leaf in which they differ, in the order of the files."""
    first, second = dict(leaves(one)), dict(leaves(other))
    names = dict.fromkeys([*first, *second])
    pairs = {name: (first.get(name, ABSENT), second.get(name, ABSENT)) for name in names}
    return {name: pair for name, pair in pairs.items() if pair[0] != pair[1] or type(pair[0]) is not type(pair[1])}


def matches(folder: Path, text: str) -> bool:
    """Whether the configuration of the trial in `folder` holds `text`, or, for `key=value`, has that leaf.

    Values are compared as what they spell, so 1e-2 is 0.01. The file's lines are searched first, where they tell:
    reading the YAML of ten thousand trials takes a hundred times as long.
    """
    try:
        raw = config_path(folder).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    key, equals, value = text.partition("=")
    if not equals:
        return text in raw
    wanted, name = _spelled(value), key.rpartition(".")[2]
    if not name.isdecimal() and " " not in value:  # an item of a list has no key, and a long text has several lines
        lines = re.findall(rf"^[ -]*{re.escape(name)}:(.*)$", raw, re.MULTILINE)
        if not any(_same(_spelled(line), wanted) for line in lines):
            return False
    return any(leaf == key and _same(_number(found), wanted) for leaf, found in leaves(read_config(folder)))


def _spelled(text: str) -> Any:
    """The value that a text spells in YAML."""
    try:
        return _number(parse_yaml(text, StoredLoader))
    except (yaml.YAMLError, ValueError):
        return text.strip()


def _number(value: Any) -> Any:
    """1e-2, a text to YAML and a number to everybody else, as the number; any other value as it is."""
    try:
        return float(value) if isinstance(value, str) else value
    except ValueError:
        return value


def _same(one: object, other: object) -> bool:
    """Equal, and not merely as true equals 1."""
    return one == other and isinstance(one, bool) == isinstance(other, bool)


def command_of(config: Mapping[str, Any]) -> str | None:
    """The command that a trial runs in place of a training of ours; None where it runs none."""
    node = config.get("measure") or {}
    return str(node.get("run")) if str(node.get("_target_")).endswith("measure.command.Command") else None
