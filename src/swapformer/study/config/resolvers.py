"""The interpolations that a configuration may use: references to its own keys, and nothing that reads the machine.

`${seed}` refers to a key. `${oc.env:NAME}` asks a resolver, here for a variable of the environment: in a file from
elsewhere it would carry a secret into a trial's configuration, and from there into reports and mirrors.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache

from swapformer.errors import UsageError, quote
from swapformer.paths import conf_dir

VARIABLE = "SWAPFORMER_RESOLVERS"
"""The environment variable that names the resolvers which the user allows, with commas between. No file can."""


def require_references(node: object, path: str = "") -> None:
    """Refuse interpolations that ask a resolver, but for those of conf/ itself and those that the user allows.

    Args:
        node: a configuration that is not resolved yet, a list of overrides, or a text.
        path: the key under which it stands.

    Raises:
        UsageError: for the first.
    """
    if isinstance(node, str):
        for name in resolvers(node) if "${" in node else ():
            if name not in _allowed() and node not in _shipped():
                known = name if re.fullmatch(r"[\w.]+", name) else "NAME"
                raise UsageError(
                    f"{f'`{path}`' if path else 'an override'} must refer only to keys of the configuration, such as "
                    f"${{seed}}, but {quote(node[:100])} asks the resolver {quote(name[:40])}; if you trust it: "
                    f"{VARIABLE}={known} before the command"
                )
    elif isinstance(node, Mapping):
        for key, value in node.items():
            require_references(key, path)
            require_references(value, f"{path}.{key}" if path else str(key))
    elif isinstance(node, Sequence) and not isinstance(node, bytes):
        for value in node:
            require_references(value, path)


def resolvers(text: str) -> Iterator[str]:
    """The names of the resolvers that a text asks: what stands between `${` and the first colon before its `}`.

    Interpolations may stand within others, in the place of a name too.
    """
    for start in (found.end() for found in re.finditer(r"\$\{", text)):
        depth = 0
        for place in range(start, len(text)):
            letter = text[place]
            depth += (letter == "{") - (letter == "}")
            if depth < 0:
                break
            if letter == ":" and depth == 0:
                yield text[start:place].strip()
                break


def _allowed() -> set[str]:
    return {name.strip() for name in os.environ.get(VARIABLE, "").split(",") if name.strip()}


@lru_cache
def _shipped() -> frozenset[str]:
    """The values in conf/ that ask a resolver."""
    texts = (path.read_text(encoding="utf-8") for path in conf_dir().rglob("*.yaml"))
    return frozenset(found for text in texts for found in re.findall(r": (\$\{[\w.]+:[^{}\s]*\})(?:\s|$)", text))
