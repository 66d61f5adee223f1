"""Reads YAML: the one loader of every YAML that is read, ours or a user's.

It differs from PyYAML's safe loader in three ways, all of which are Hydra's too, so that a file means the same
everywhere: a key that stands twice in a mapping is an error that names both lines, `1e-3` is a number, and a date is a
text.
"""

from __future__ import annotations

import re
from collections.abc import Hashable
from pathlib import Path
from typing import Any

import yaml

from swapformer.errors import UsageError, quote

_BASE: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _Loader(_BASE):  # type: ignore[misc]
    """PyYAML's safe loader without doubled keys."""

    def construct_mapping(self, node: Any, deep: bool = False) -> Any:
        first: dict[Hashable, int] = {}
        for key_node, _ in node.value if isinstance(node, yaml.MappingNode) else ():
            if key_node.tag == "tag:yaml.org,2002:merge":
                continue
            key, line = self.construct_object(key_node, deep=True), key_node.start_mark.line + 1
            if isinstance(key, Hashable) and first.setdefault(key, line) is not line:
                raise yaml.MarkedYAMLError(
                    problem=f"the key {quote(key)} stands twice, in line {first[key]} and in line {line}; keep one"
                )
        return super().construct_mapping(node, deep)


_Loader.yaml_implicit_resolvers = {
    letter: [(tag, pattern) for tag, pattern in found if tag != "tag:yaml.org,2002:timestamp"]
    for letter, found in _BASE.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"[-+]?(\d[\d_]*)(\.[\d_]*)?[eE][-+]?\d+$"), list("-+0123456789")
)


def parse_yaml(text: str | bytes) -> Any:
    """What a text of YAML holds. Raises yaml.YAMLError."""
    return yaml.load(text, Loader=_Loader)


def read_yaml(path: Path, what: str = "the file") -> Any:
    """What a YAML file holds.

    Raises:
        UsageError: one line that names `what` it is, if it cannot be read.
    """
    try:
        return parse_yaml(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:
        raise UsageError(f"{what} {path} cannot be read: {reason(error)}") from None


def reason(error: BaseException) -> str:
    """Why a YAML cannot be read, in one short line."""
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    if isinstance(error, yaml.MarkedYAMLError):
        mark = error.problem_mark or error.context_mark
        return f"{error.problem}{f', in line {mark.line + 1}' if mark else ''}"
    return " ".join(str(error).split())[:200]
