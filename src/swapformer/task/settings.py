"""Lengths as settings: a range for training, and lengths or multiples of the longest for evaluation."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from swapformer.errors import UsageError


def whole_number(name: str, value: object, least: int) -> int:
    """`value` as an int; UsageError unless it is a whole number of at least `least`."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise UsageError(f"task.{name} must be a whole number of at least {least}, but is {value!r}")
    return value


def share(name: str, value: object) -> float:
    """`value` as a float; UsageError unless it is a number between 0 and 1, both excluded."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1:
        raise UsageError(f"task.{name} must be a number between 0 and 1, but is {value!r}")
    return float(value)


def presence(name: str, value: object) -> bool:
    """`value` as a bool; UsageError unless it is one (a word would count as true)."""
    if not isinstance(value, bool):
        raise UsageError(f"task.{name} must be true or false, but is {value!r}")
    return value


def whole_numbers(name: str, values: Iterable[object], least: int) -> tuple[int, ...]:
    """`values` as a tuple of ints; UsageError names what is wrong."""
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise UsageError(f"task.{name} must be a list of whole numbers, such as [64,128], but is {values!r}")
    return tuple(whole_number(f"{name} entries", value, least) for value in values)


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


def shares(split: Sequence[float]) -> tuple[float, float, float]:
    """`split` as shares of training, validation and test; UsageError unless it is that."""
    given = list(split) if isinstance(split, Iterable) and not isinstance(split, str) else [split]
    numbers = [share for share in given if isinstance(share, int | float) and not isinstance(share, bool)]
    if (
        len(numbers) != 3
        or len(given) != 3
        or not (numbers[0] > 0 and numbers[1] > 0 and numbers[2] >= 0)
        or abs(sum(numbers) - 1) > 1e-6
    ):
        raise UsageError(
            f"task.split must be three shares that add up to 1, training and validation above 0, but is {split!r}; "
            "take [0.9,0.05,0.05], or [0.9,0.1,0.0] for no test"
        )
    return numbers[0], numbers[1], numbers[2]
