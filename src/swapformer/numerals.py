"""Numbers as files and programs write them, read strictly: `1_0` and digits of other scripts are no numbers."""

from __future__ import annotations

import re

_FINITE = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?", re.ASCII)
_NOT_FINITE = re.compile(r"[-+]?(nan|inf|infinity)", re.ASCII | re.IGNORECASE)


def read_number(value: object) -> float:
    """The number that `value` is, or that its text spells, spaces around it aside; also `nan`, `inf` and `-inf`.

    Raises:
        ValueError: for anything else.
    """
    if isinstance(value, float | int):
        return float(value)
    word = str(value).strip()
    if not _FINITE.fullmatch(word) and not _NOT_FINITE.fullmatch(word):
        raise ValueError(f"{word!r} is no number")
    return float(word)


def is_finite_number(text: str) -> bool:
    """Whether a text, exactly as it stands, spells a number other than nan and infinity."""
    return _FINITE.fullmatch(text) is not None
