"""Reads YAML and JSON: the one reader of every YAML file, ours or a user's, and of the JSON of others.

A key that appears twice in a mapping is an error: the formats themselves would drop the first without a word.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Hashable
from pathlib import Path
from typing import Any

import yaml

from swapformer.errors import UsageError, quote

DEEPEST = 100
"""How deep mappings and lists may be nested: libyaml's recursion does not survive just any depth."""
MOST_VALUES = 1_000_000
"""How many values a file may hold, with each alias as what it stands for."""
_BASE: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_TEXT, _MERGE = "tag:yaml.org,2002:str", "tag:yaml.org,2002:merge"


class StoredLoader(_BASE):  # type: ignore[misc]
    """PyYAML's safe loader without doubled keys: what reads the files that PyYAML has written."""

    def construct_mapping(self, node: Any, deep: bool = False) -> Any:
        lines: dict[Hashable, int] = {}
        for key_node, _ in node.value if isinstance(node, yaml.MappingNode) else ():
            if key_node.tag == _MERGE:
                continue
            key = key_node.value if key_node.tag == _TEXT else self.construct_object(key_node, deep=True)
            if not isinstance(key, Hashable):
                continue
            line = key_node.start_mark.line + 1
            if key in lines:
                both = f"in line {lines[key]} and in line {line}"
                raise DoubledKey(f"the key {quote(key)} appears twice, {both}; keep one")
            lines[key] = line
        return super().construct_mapping(node, deep)


class DoubledKey(yaml.YAMLError):
    """A key appears twice in a mapping; the message says in which lines."""


class Spelled(float):
    """A number with the text that spells it in the file, which names of conditions repeat."""

    text: str


class Loader(StoredLoader):
    """The loader of files that people write: as in Hydra's, 1e-3 is a number and a date is a text."""

    def construct_spelled(self, node: Any) -> Spelled:
        number = Spelled(node.value.replace("_", ""))
        number.text = node.value
        return number


Loader.yaml_implicit_resolvers = {
    letter: [(tag, pattern) for tag, pattern in found if tag != "tag:yaml.org,2002:timestamp"]
    for letter, found in _BASE.yaml_implicit_resolvers.items()
}
Loader.add_implicit_resolver(
    "!spelled", re.compile(r"[-+]?(\d[\d_]*\.?[\d_]*|\.\d+)[eE][-+]?\d+$"), list("-+.0123456789")
)
Loader.add_constructor("!spelled", Loader.construct_spelled)


def parse_yaml(text: str | bytes, loader: Any = Loader) -> Any:
    """The content of a text of YAML.

    Raises yaml.YAMLError, also for one that is nested too deeply, or small on disk and huge when its aliases stand for
    what they name.
    """
    sizes: dict[
        str | None, int | None
    ] = {}  # of what an anchor names, aliases written out; None while it is being read
    open_nodes: list[tuple[str | None, int]] = []
    total = 0
    for event in yaml.parse(text, Loader=loader):
        anchor = getattr(event, "anchor", None)
        if isinstance(event, yaml.AliasEvent):
            if (size := sizes.get(anchor, 0)) is None:
                raise yaml.YAMLError(f"the alias *{anchor} stands within what it names")
            total += size
        elif isinstance(event, yaml.CollectionEndEvent):
            anchor, before = open_nodes.pop()
            sizes[anchor] = total - before
        elif isinstance(event, yaml.NodeEvent):
            begins = isinstance(event, yaml.CollectionStartEvent)
            open_nodes += [(anchor, total)] if begins else []
            sizes[anchor] = None if begins else 1
            total += 1
        if len(open_nodes) > DEEPEST:
            raise yaml.YAMLError(f"it is nested more than {DEEPEST} deep")
        if total > MOST_VALUES:
            raise yaml.YAMLError(f"it holds more than {MOST_VALUES:,} values, aliases written out")
    return yaml.load(text, Loader=loader)


def parse_foreign_json(text: str | bytes) -> Any:
    """The content of a text of JSON that somebody else wrote.

    Raises ValueError, also for a doubled key, of which JSON would keep the last, and for one that is nested too deeply.
    """

    def single(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            twice = Counter(key for key, _ in pairs).most_common(1)[0][0]
            raise ValueError(f"the key {quote(twice)} appears twice; keep one")
        return found

    try:
        return json.loads(text, object_pairs_hook=single)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def read_yaml(path: Path, what: str = "the file") -> Any:
    """The content of a YAML file.

    Raises:
        UsageError: one line that names `what` it is, if it cannot be read.
    """
    try:
        return parse_yaml(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, TypeError, yaml.YAMLError) as error:
        raise UsageError(f"{what} {path} cannot be read: {reason(error)}") from None


def reason(error: BaseException) -> str:
    """The reason why a YAML cannot be read, in one short line."""
    if isinstance(error, yaml.MarkedYAMLError):
        mark = error.problem_mark or error.context_mark
        return f"{error.problem}{f', in line {mark.line + 1}' if mark else ''}"
    return " ".join(str(error).split())[:200]
