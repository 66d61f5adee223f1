"""The error of wrong use: the user asked for something that cannot be done."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


class UsageError(ValueError):
    """Wrong use: says what must hold, what was given, what to do. The command line prints one line, status 2."""


def suggest(name: str, known: Iterable[str]) -> str:
    """A hint to append to an error about an unknown `name`: the closest of the `known` names, or all of them."""
    known = sorted(known)
    close = get_close_matches(name, known, n=3, cutoff=0.6)
    if close:
        return f"; did you mean {' or '.join(repr(c) for c in close)}?"
    return f"; known: {', '.join(known)}" if known else ""
