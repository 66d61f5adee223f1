"""Settings of a part that exclude each other: an expansion or a width."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from swapformer.errors import UsageError
from swapformer.targets import find


def alternatives(node: Mapping[str, Any], setting: str) -> tuple[str, ...]:
    """The other settings of a part's node that `setting` excludes, as its class states them."""
    return tuple(other for group in _groups(node) if setting in group for other in group if other != setting)


def require_one(node: Any, key: str) -> None:
    """Refuse a node, or one within it, that sets two settings which exclude each other.

    Args:
        node: of a configuration, at `key`.
        key: what the node is called in messages.

    Raises:
        UsageError: naming both, and how either is unset.
    """
    if isinstance(node, Mapping):
        for group in _groups(node):
            given = [name for name in group if node.get(name) is not None]
            if len(given) > 1:
                said = " and ".join(f"{key}.{name}={node[name]}" for name in given)
                unset = " or ".join(f"{key}.{name}=null" for name in reversed(given))
                remedy = "take one of them out of the layer" if ".layers." in key else f"unset the other, with {unset}"
                raise UsageError(f"{said} exclude each other, so at most one may be set; {remedy}")
    for name, held in _entries(node):
        require_one(held, f"{key}.{name}")


def _groups(node: Mapping[str, Any]) -> tuple[tuple[str, ...], ...]:
    """The groups of settings that the class of a part's node declares; none of any other node."""
    return getattr(find(node["_target_"]), "alternatives", ()) if "_target_" in node else ()


def _entries(node: Any) -> Iterator[tuple[Any, Any]]:
    if isinstance(node, Mapping):
        yield from node.items()
    elif isinstance(node, list):
        yield from enumerate(node)
