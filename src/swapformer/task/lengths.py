"""Lengths as settings: a range for training, and lengths or multiples of the longest for evaluation."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from swapformer.errors import UsageError
from swapformer.task.base import whole_number, whole_numbers


def span(name: str, values: Iterable[object], least: int = 1) -> tuple[int, int]:
    """`values` as (shortest, longest); UsageError unless they are two whole numbers in order, of at least `least`."""
    found = whole_numbers(name, values, least)
    if len(found) != 2 or found[0] > found[1]:
        raise UsageError(f"task.{name} must be [shortest, longest], but is {list(found)}")
    return found


def evaluation_lengths(name: str, values: Sequence[int | str], trained: int, least: int = 1) -> tuple[int, ...]:
    """Lengths to evaluate: whole numbers, or `kx` for k times the longest trained length.

    UsageError: an entry is neither, or is below `least`.
    """
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise UsageError(
            f"task.{name} must be a list of whole numbers or multiples, such as [24,2x], but is {values!r}"
        )
    multiples = [re.fullmatch(r"(\d+)x", value) if isinstance(value, str) else None for value in values]
    numbers = [
        value if multiple is None else int(multiple[1]) * trained
        for value, multiple in zip(values, multiples, strict=True)
    ]
    for value in numbers:
        if isinstance(value, str):
            raise UsageError(
                f"task.{name} entries must be whole numbers, or multiples of the longest trained length such as 2x, "
                f"but one is {value!r}"
            )
    return tuple(whole_number(f"{name} entries", value, least) for value in numbers)
