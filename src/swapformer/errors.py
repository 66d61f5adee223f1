"""The error of wrong use, and what a user wrote as messages, figures and pages may show it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches

QUOTED = 200
"""The most characters of the user's own input that a message repeats."""
_UNPRINTABLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufeff\ufffe\uffff]"
)
"""What moves a terminal's cursor, colours it or turns its text around, and what XML cannot hold."""


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


def cut(text: object, most: int = 120) -> str:
    """A text of somebody else's, such as a library's error, as part of a message of ours: one line, cut."""
    line = " ".join(str(text).split())
    return line if len(line) <= most else f"{line[: most - 1]}…"


def _pieces(value: object) -> Iterator[str]:
    """The result of `repr`, piece by piece: the whole of a nested value may be beyond any memory."""
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


def printable(text: str) -> str:
    """`text` with its control and bidirectional characters as escapes such as `\\x1b`; lines and tabs stay."""
    return _UNPRINTABLE.sub(lambda found: ascii(found[0])[1:-1], text)


def suggest(name: str, known: Iterable[str]) -> str:
    """A hint to append to an error about an unknown `name`: the closest of the `known` names, or all of them."""
    known = sorted(known)
    close = get_close_matches(name, known, n=3, cutoff=0.6)
    if close:
        return f"; did you mean {' or '.join(repr(c) for c in close)}?"
    return f"; known: {', '.join(known)}" if known else ""
