"""Checks of the settings of tasks, and constructors that pass settings on to their base class."""

from __future__ import annotations

import inspect
import re
from collections.abc import Sequence
from typing import Any

from swapformer.errors import UsageError


class PassesSettings:
    """Base of classes whose `__init__(self, *, own: int, **settings)` passes `settings` on to the next class.

    `inspect.signature` of such a class lists all settings by name, those of its bases after its own; a setting that no
    class takes is a TypeError.
    """

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        found: dict[str, inspect.Parameter] = {}
        for base in cls.__mro__:
            if "__init__" in vars(base):
                own = [*inspect.signature(vars(base)["__init__"]).parameters.values()][1:]
                found = found | {one.name: one for one in own if one.name not in found}
                if found.pop("settings", None) is None:
                    break
        cls.__signature__ = inspect.Signature([*found.values()])  # type: ignore[attr-defined]


def at_least(name: str, value: int, least: int) -> int:
    """`value`; UsageError unless it is at least `least`, which depends on another setting."""
    if value < least:
        raise UsageError(f"task.{name} must be at least {least}, but is {value}")
    return value


def length_range(name: str, values: Sequence[int], least: int = 1) -> tuple[int, int]:
    """`values` as (shortest, longest); UsageError unless they are two whole numbers in order, of at least `least`."""
    found = tuple(at_least(f"{name} entries", value, least) for value in values)
    if len(found) != 2 or found[0] > found[1]:
        raise UsageError(f"task.{name} must be [shortest, longest], but is {list(found)}")
    return found


def evaluation_lengths(name: str, values: Sequence[int | str], trained: int, least: int = 1) -> tuple[int, ...]:
    """Lengths to evaluate: whole numbers, or `kx` for k times the longest trained length.

    UsageError: a text is no multiple, or a length is below `least`.
    """
    found: list[int] = []
    for value in values:
        multiple = re.fullmatch(r"(\d+)x", value) if isinstance(value, str) else None
        if not isinstance(value, str):
            found.append(value)
        elif multiple is None:
            raise UsageError(
                f"task.{name} entries must be whole numbers, or multiples of the longest trained length such as 2x, "
                f"but one is {value!r}"
            )
        else:
            found.append(int(multiple[1]) * trained)
    return tuple(at_least(f"{name} entries", value, least) for value in found)


def split_shares(split: Sequence[float]) -> tuple[float, float, float]:
    """`split` as shares of training, validation and test; UsageError unless it is that."""
    if len(split) != 3 or not (split[0] > 0 and split[1] > 0) or abs(sum(split) - 1) > 1e-6:
        raise UsageError(
            f"task.split must be three shares that add up to 1, training and validation above 0, but is {split!r}; "
            "take [0.9,0.05,0.05], or [0.9,0.1,0.0] for no test"
        )
    return split[0], split[1], split[2]


def column_name(name: str, value: str) -> str:
    """`value` as the name of a column of a table; UsageError if it is empty."""
    if not value:
        raise UsageError(f"task.{name} must name a column of the table, but is {value!r}")
    return value
