"""Types of settings that say which numbers are meant, and the one check of given settings against them.

A constructor declares what it takes: `rank: Count`, `share: Annotated[float, Within("(0, 1]")]`, `width: Count | None`.
Every setting is held to its type: a number is finite, no text and no truth value.
"""

from __future__ import annotations

import ast
import inspect
import logging
import math
import sys
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, is_dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal, Self, Union, get_args, get_origin

from swapformer.errors import UsageError, quote

log = logging.getLogger(__name__)

LARGEST = 2**53
"""The largest number that a setting may be, unless its range says more: up to here, floats hold each whole number."""


@dataclass(frozen=True)
class Within:
    """The numbers of an interval, such as "(0, 1]" for 0 < number ≤ 1."""

    interval: str

    @cached_property
    def _ends(self) -> tuple[float, float]:
        low, high = map(float, self.interval[1:-1].split(","))
        return low, high

    @property
    def largest(self) -> float:
        """The largest number of the interval: its end, where that is given and lies beyond `LARGEST`."""
        high = self._ends[1]
        return LARGEST if math.isinf(high) else max(high, LARGEST)

    def holds(self, number: Any) -> bool:
        """Whether a number is in the interval. What is no number, such as null, is for others to refuse."""
        if isinstance(number, bool) or not isinstance(number, int | float):
            return True
        low, high = self._ends
        above = low <= number if self.interval[0] == "[" else low < number
        return above and (number <= high if self.interval[-1] == "]" else number < high)

    def __str__(self) -> str:
        low, high = self._ends
        if math.isinf(high):
            return f"{'of at least' if self.interval[0] == '[' else 'above'} {low:g}"
        return f"in {self.interval}"


Count = Annotated[int, Within("[1, inf)")]
Natural = Annotated[int, Within("[0, inf)")]
Positive = Annotated[float, Within("(0, inf)")]
NonNegative = Annotated[float, Within("[0, inf)")]
Share = Annotated[float, Within("[0, 1]")]
OpenShare = Annotated[float, Within("(0, 1)")]
Fraction = Annotated[float, Within("(0, 1]")]
Factor = Annotated[float, Within("[1, inf)")]
Several = Annotated[int, Within("[2, inf)")]


def check(hint: Any, value: object, name: str) -> None:
    """Raise UsageError unless the setting `name` is of the type `hint`."""
    try:
        held = _scalar_fits(hint, value) if isinstance(value, int | float | str) else fits(hint, value)
    except TypeError:  # marks of a user's own that cannot be looked up
        held = fits(hint, value)
    if not held:
        raise UsageError(complaint(hint, value, name))


def check_settings(made: Callable[..., Any], settings: Mapping[str, Any], where: str = "") -> None:
    """Raise UsageError for the first setting that is not of the type which a class declares; `where` is its node."""
    hints = hints_of(made)
    for name, value in settings.items():
        if name in hints:
            check(hints[name], value, f"{where}.{name}" if where else name)


class Declared:
    """Base of parts, tasks, sources, probes and measurements: holds each keyword to the type that it declares.

    Raises:
        UsageError: for the first keyword that is not of its type, before the constructor runs.
    """

    def __new__(cls, *args: Any, **settings: Any) -> Self:
        check_settings(cls, settings)
        return super().__new__(cls)


def complaint(hint: Any, value: object, name: str) -> str:
    """A complaint: what a setting must be, what it is, and how to write a number that was given as a text."""
    advice = ""
    if isinstance(value, str) and any(fits(hint, number) for number in _numbers(value)):
        advice = f"; write {value} without quotes"
    elif isinstance(value, float) and value.is_integer() and fits(hint, int(value)):
        advice = f"; write {int(value)}"
    elif _is_list(get_origin(hint)) and not isinstance(value, list | tuple) and fits(hint, [value]):
        advice = f"; write [{value}]"
    bounds = ""
    if isinstance(value, int | float) and not abs(value) <= LARGEST:
        bounds = f", at most {LARGEST:g}" if abs(value) < math.inf else ", and finite"
    return f"`{name}` must be {described(hint)}{bounds}, but it is {quote(value)}{advice}."


@lru_cache(maxsize=1024)
def hints_of(made: Callable[..., Any]) -> dict[str, Any]:
    """Name → type of what a class or function takes; a class that passes settings on takes those of its bases too.

    A dataclass inherits fields, whose types are names in the module of the base that declares them.
    """
    found: dict[str, Any] = {}
    unread: dict[str, Exception] = {}
    for base in made.__mro__ if inspect.isclass(made) else [made]:
        function = base.__dict__.get("__init__") if inspect.isclass(base) else base
        if not inspect.isfunction(function):
            continue
        names = function.__globals__ if not is_dataclass(base) else vars(sys.modules[base.__module__])
        parameters = inspect.signature(function).parameters
        for name, parameter in parameters.items():
            if found.get(name, Any) is Any:
                try:
                    found[name] = _evaluated(parameter.annotation, names)
                    unread.pop(name, None)
                except Exception as error:  # a base may know the name
                    found[name], unread[name] = Any, error
        if not is_dataclass(base) and not any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
            break
    for name, why in unread.items():
        log.warning(
            "the type of `%s` of %s cannot be read (%s), so its values are not checked", name, made.__qualname__, why
        )
    return found


def _evaluated(annotation: Any, names: dict[str, Any]) -> Any:
    """An annotation as a type; Any where it says nothing, or names what is imported for type checkers only."""
    if annotation is inspect.Parameter.empty:
        return Any
    try:
        return eval(annotation, names) if isinstance(annotation, str) else annotation
    except NameError as error:
        if error.name in _imported(names.get("__file__")):
            return Any
        raise


@lru_cache
def _imported(file: str | None) -> frozenset[str]:
    """The names that a file of Python imports somewhere, be it for type checkers only."""
    try:
        tree = ast.parse(Path(file or "").read_text(encoding="utf-8"))
    except (OSError, ValueError, SyntaxError):
        return frozenset()
    imports = (node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom))
    return frozenset(alias.asname or alias.name.partition(".")[0] for node in imports for alias in node.names)


@lru_cache(maxsize=4096, typed=True)
def _scalar_fits(hint: Any, value: float | str) -> bool:
    """The result of `fits` for what is one number or text, which models ask of the same few very often."""
    return fits(hint, value)


def fits(hint: Any, value: object, largest: float = LARGEST) -> bool:
    """Whether `value` is of a type. A number is finite, and no larger than `largest` in size."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        marks = [mark for mark in arguments[1:] if isinstance(mark, Within)]
        largest = max((mark.largest for mark in marks), default=LARGEST)
        return fits(arguments[0], value, largest) and all(mark.holds(value) for mark in marks)
    if origin in (Union, types.UnionType):
        return any(fits(each, value) for each in arguments)
    if origin is Literal:
        return any(value == each and type(value) is type(each) for each in arguments)
    if hint in (None, type(None)):
        return value is None
    if hint is bool or hint is str:
        return isinstance(value, hint)
    if hint in (int, float):
        kind = int if hint is int else int | float
        return isinstance(value, kind) and not isinstance(value, bool) and abs(value) <= largest
    if _is_list(origin or hint):
        if not isinstance(value, Sequence) or isinstance(value, str):
            return False
        if (origin or hint) is tuple and arguments and arguments[-1] is not Ellipsis:
            return len(value) == len(arguments) and all(map(fits, arguments, value))
        return not arguments or all(fits(arguments[0], each) for each in value)
    # a number where a part belongs; what else a class is, such as a protocol, tells nothing about numbers
    return not (_is_object(origin or hint) and isinstance(value, bool | int | float))


def described(hint: Any) -> str:
    """The requirement of a type, in words: `a whole number of at least 1 or null`."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return " ".join([described(arguments[0]), *(str(mark) for mark in arguments[1:] if isinstance(mark, Within))])
    if origin in (Union, types.UnionType):
        return " or ".join(dict.fromkeys(described(each) for each in arguments if not _is_object(each)))
    if origin is Literal:
        return f"one of {', '.join(map(str, arguments))}"
    words = {bool: "true or false", int: "a whole number", float: "a number", str: "a text", type(None): "null"}
    if hint in words:
        return words[hint]
    if _is_list(origin or hint):
        if (origin or hint) is tuple and arguments and arguments[-1] is not Ellipsis:
            return f"a list of {len(arguments)}: {', '.join(map(described, arguments))}"
        return f"a list, each entry {described(arguments[0])}" if arguments and arguments[0] is not Any else "a list"
    return f"of the kind {getattr(hint, '__name__', hint)}"


def _is_object(hint: Any) -> bool:
    """Whether a type is that of objects which no configuration writes down as a number or a text: parts, tensors."""
    plain = (Any, object, bool, int, float, str, type(None), list, tuple, Sequence)
    return inspect.isclass(hint) and hint not in plain and hint.__module__ != "numbers"


def _is_list(kind: Any) -> bool:
    return kind in (list, tuple, Sequence)


def _numbers(text: str) -> Iterator[int | float]:
    """The number that a text spells."""
    for kind in (int, float):
        try:
            yield kind(text)
        except ValueError:
            continue
