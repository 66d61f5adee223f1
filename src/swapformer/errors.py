"""The error of wrong use: the user asked for something that cannot be done."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches

QUOTED = 200
"""The most characters of the user's own input that a message repeats."""


class UsageError(ValueError):
    """Wrong use: says what must hold, what was given, what to do. The command line prints one line, status 2."""


def quote(value: object) -> str:
    """`value` as a message shows it: cut to 200 characters, its control and bidirectional characters escaped."""
    text = ""
    for piece in _pieces(value):
        text += "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in piece)
        if len(text) > QUOTED:
            return f"{text[: QUOTED - 1]}…"
    return text


def _pieces(value: object) -> Iterator[str]:
    """What `repr` gives, piece by piece: the whole of a nested value may be beyond any memory."""
    if isinstance(value, Mapping):
        yield "{"
        for index, (key, held) in enumerate(value.items()):
            yield f"{', ' if index else ''}{quote(key)}: "
            yield from _pieces(held)
        yield "}"
    elif isinstance(value, list | tuple):
        yield "[" if isinstance(value, list) else "("
        for index, held in enumerate(value):
            yield ", " if index else ""
            yield from _pieces(held)
        yield "]" if isinstance(value, list) else ",)" if len(value) == 1 else ")"
    elif isinstance(value, int) and value.bit_length() > 4 * QUOTED:
        yield f"a whole number of more than {QUOTED} digits"
    else:
        yield repr(value[: QUOTED + 1] if isinstance(value, str | bytes) else value)


def suggest(name: str, known: Iterable[str]) -> str:
    """A hint to append to an error about an unknown `name`: the closest of the `known` names, or all of them."""
    known = sorted(known)
    close = get_close_matches(name, known, n=3, cutoff=0.6)
    if close:
        return f"; did you mean {' or '.join(repr(c) for c in close)}?"
    return f"; known: {', '.join(known)}" if known else ""
