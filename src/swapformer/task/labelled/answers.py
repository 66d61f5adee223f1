"""Answers in the columns of a table: classes or values, checked and turned into numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from swapformer.errors import UsageError
from swapformer.task.base import Split
from swapformer.task.division import SPLITS

Kind = Literal["classes", "values", "none"]
Answer = str | tuple[float, ...] | None


def answer_of(kind: Kind, row: str, columns: Sequence[str], values: Mapping[str, Any]) -> Answer:
    """The answer of a row: the name of its class, its values, or nothing; UsageError, which names it, if it is none."""
    if kind == "none":
        return None
    if kind == "values":
        return tuple(_value(row, column, values[column]) for column in columns)
    [column] = columns
    label = values[column]
    if not isinstance(label, str | int) or label == "":
        raise UsageError(
            f"the column {column!r} must hold a word or a whole number for a class, but at {row} it is "
            f"{'null' if label is None else f'{label!r:.40}'}; correct that row"
        )
    return str(label)


def _value(row: str, column: str, value: Any) -> float:
    try:
        number = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number):
        raise UsageError(
            f"the column {column!r} must hold a number, but at {row} it is "
            f"{'null' if value is None else f'{value!r:.40}'}; correct that row"
        )
    return number


class ExampleAnswers:
    """The answers of the rows of each split, in their order."""

    def __init__(self, kind: Kind) -> None:
        self._kind = kind
        self._held: dict[Split, list[Answer]] = {split: [] for split in SPLITS}
        self._rows: dict[str, tuple[Split, str]] = {}

    def add(self, split: Split, row: str, answer: Answer) -> None:
        """Add the answer of the row called `row`."""
        self._held[split].append(answer)
        if isinstance(answer, str) and split != "train":
            self._rows.setdefault(answer, (split, row))

    @property
    def counts(self) -> list[int]:
        """The number of rows of each split."""
        return [len(self._held[split]) for split in SPLITS]

    def classes(self) -> list[str]:
        """The classes of training in the order of their names, whole numbers in theirs.

        UsageError: there are not two of them, or another split has one that training has not.
        """
        known = {answer for answer in self._held["train"] if isinstance(answer, str)}
        if self._kind != "classes":
            return []
        if strange := sorted(self._rows.keys() - known):
            split, row = self._rows[strange[0]]
            raise UsageError(
                f"the labels of validation and test must occur in training, which has {_some(known)}, but at {row} "
                f"the {split} split has {strange[0]!r}; give more rows of it, remove it, or take another task.split"
            )
        if len(known) < 2:
            raise UsageError(
                f"there must be at least two classes to tell apart, but training has {_some(known)}; give other rows, "
                "or another task.label"
            )
        numbers = all(name.removeprefix("-").isdecimal() for name in known)
        return sorted(known, key=(lambda name: (int(name), name)) if numbers else None)

    def array(self, classes: Sequence[str]) -> NDArray[Any]:
        """The answers of training, validation and test: classes [E] int64, values [E,A] float64, or nothing [E,0]."""
        rows = [answer for split in SPLITS for answer in self._held[split]]
        if self._kind == "classes":
            index = {name: number for number, name in enumerate(classes)}
            return np.array([index[str(answer)] for answer in rows], dtype=np.int64)
        return np.array([answer or () for answer in rows], dtype=np.float64)


def _some(names: set[str]) -> str:
    shown = sorted(names)[:8]
    return ", ".join(shown) + (f" and {len(names) - len(shown)} more" if len(names) > len(shown) else "") or "none"
