"""Numbers as files and programs write them, read strictly: `1_0`, `True` and digits of other scripts are no numbers."""

from __future__ import annotations

import math
import re

_FINITE = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?", re.ASCII)
_NOT_FINITE = re.compile(r"[-+]?(nan|inf|infinity)", re.ASCII | re.IGNORECASE)


def read_number(value: object) -> float:
    """The number that `value` is, or that its text spells, spaces around it aside; also `nan`, `inf` and `-inf`.

    Raises:
        ValueError: for anything else.
    """
    if isinstance(value, float):
        return value
    word = str(value).strip()
    found = float(word) if _FINITE.fullmatch(word) or _NOT_FINITE.fullmatch(word) else None
    if found is None or (math.isinf(found) and _FINITE.fullmatch(word)):
        raise ValueError(f"{word!r} is no number" if found is None else f"{word[:20]}… is too large for a number")
    return found


def is_finite_number(text: str) -> bool:
    """Whether a text, exactly as it stands, spells a number other than nan and infinity."""
    return _FINITE.fullmatch(text) is not None
