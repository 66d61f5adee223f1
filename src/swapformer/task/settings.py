"""Checks of the settings of tasks, and constructors that pass settings on to their base class."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from swapformer.errors import UsageError, quote


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


def whole_number(name: str, value: object, least: int, most: int | None = None) -> int:
    """`value` as an int; UsageError unless it is a whole number of at least `least`, and at most `most` if given."""
    beyond = f" and at most {most}" if most is not None else ""
    if isinstance(value, bool) or not isinstance(value, int) or value < least or (most is not None and value > most):
        raise UsageError(f"task.{name} must be a whole number of at least {least}{beyond}, but is {quote(value)}")
    return value


def number(name: str, value: object, condition: str, holds: Callable[[float], bool], advice: str = "") -> float:
    """`value`; UsageError, which says the condition, unless it is a number for which it holds."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not holds(value):
        raise UsageError(f"task.{name} must be {condition}, but is {value!r}{advice}")
    return value


def share(name: str, value: object) -> float:
    """`value` as a float; UsageError unless it is a number between 0 and 1, both excluded."""
    return float(number(name, value, "a number between 0 and 1", lambda given: 0 < given < 1))


def boolean(name: str, value: object) -> bool:
    """`value` as a bool; UsageError unless it is one (a word would count as true)."""
    if not isinstance(value, bool):
        raise UsageError(f"task.{name} must be true or false, but is {value!r}")
    return value


def length_range(name: str, values: Iterable[object], least: int = 1) -> tuple[int, int]:
    """`values` as (shortest, longest); UsageError unless they are two whole numbers in order, of at least `least`."""
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise UsageError(f"task.{name} must be a list of whole numbers, such as [64,128], but is {values!r}")
    found = tuple(whole_number(f"{name} entries", value, least) for value in values)
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
    found = []
    for value in values:
        multiple = re.fullmatch(r"(\d+)x", value) if isinstance(value, str) else None
        if isinstance(value, str) and multiple is None:
            raise UsageError(
                f"task.{name} entries must be whole numbers, or multiples of the longest trained length such as 2x, "
                f"but one is {value!r}"
            )
        found.append(value if multiple is None else int(multiple[1]) * trained)
    return tuple(whole_number(f"{name} entries", value, least) for value in found)


def evaluation_batch(given: int | None, batch_size: int) -> int:
    """The size of an evaluation batch: one of its own, so that `batch_size` does not change what is evaluated."""
    return batch_size if given is None else whole_number("eval_batch_size", given, 1)


def split_shares(split: Sequence[float]) -> tuple[float, float, float]:
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


def column_name(name: str, value: object) -> str:
    """`value` as the name of a column of a table; UsageError unless it is one."""
    if not isinstance(value, str) or not value:
        raise UsageError(f"task.{name} must name a column of the table, but is {value!r}")
    return value
