"""Which classes a configuration may name: it may come from anywhere, and naming a class runs its package."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping

from swapformer.errors import UsageError

KNOWN = ("swapformer", "torch.optim", "torch.nn", "lion_pytorch")
"""Packages whose classes every configuration may name."""
VARIABLE = "SWAPFORMER_PACKAGES"
"""The environment variable that names further ones, with commas between. No file can: it must be the user's word."""


def allowed() -> str:
    """What the user allows besides, for processes that do not have this one's environment."""
    return os.environ.get(VARIABLE, "")


def targets(node: object) -> Iterator[str]:
    """Every `_target_` in a configuration."""
    if isinstance(node, Mapping):
        if isinstance(target := node.get("_target_"), str):
            yield target
        for value in node.values():
            yield from targets(value)
    elif isinstance(node, list | tuple):
        for value in node:
            yield from targets(value)


def require_known(node: object) -> None:
    """Refuse a configuration that names what neither swapformer nor the user has allowed; nothing is imported.

    Raises:
        UsageError: for the first such name.
    """
    packages = [*KNOWN, *(name.strip() for name in allowed().split(",") if name.strip())]
    for target in targets(node):
        if not any(target.startswith(f"{package}.") for package in packages):
            package = target.split(".")[0]
            raise UsageError(
                f"`_target_` must name a class of {', '.join(KNOWN)} or of a package that you allow, but the "
                f"configuration has {target}; if you trust it: {VARIABLE}={package} before the command"
            )
