"""Reads JSON as a dataclass: a field that is missing or of another type is damage, and is named.

One mechanism for every stored file of JSON: a class says by its annotations what its file must hold. Fields that the
class does not have are left out, since a later version may have added them.
"""

from __future__ import annotations

import json
import types
import typing
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, TypeVar, Union, get_args, get_origin

from swapformer.errors import cut, quote
from swapformer.results.files import CorruptFile, read_file

T = TypeVar("T")
_PLAIN: Mapping[Any, tuple[str, tuple[type, ...]]] = {
    str: ("a text", (str,)),
    int: ("a whole number", (int,)),
    float: ("a number", (int, float)),
    bool: ("true or false", (bool,)),
    type(None): ("null", (type(None),)),
}
"""Plain type → what it is called, and the types of values that are one: true is no number."""
_LONGEST = 4096
"""Bits of the largest whole number: any that is counted is smaller."""

_ROWS: Mapping[Any, set[type]] = {float | None: {float, int, type(None)}, float: {float, int}, str: {str}}
"""What a list is of → the types of values that are all such: long rows are not looked at one by one."""


def parse_json(content: bytes) -> Any:
    """The value that JSON spells. Raises CorruptFile."""
    try:
        return json.loads(content)
    except RecursionError:
        raise CorruptFile("not JSON (nested too deeply)") from None
    except ValueError as error:
        raise CorruptFile(f"not JSON ({error})") from None


def read_json(path: Path) -> Any:
    """The value in a file of JSON. Raises CorruptFile, and as `read_file` does."""
    return parse_json(read_file(path))


def from_json(kind: type[T], value: object, where: str = "") -> T:
    """The `kind` (a dataclass) that a value stands for; `where` names it in errors. Raises CorruptFile."""
    found: T = _as(kind, value, where)
    return found


def _as(kind: Any, value: Any, where: str) -> Any:
    """`value` as the annotation `kind` says: tuples for lists, dataclasses for mappings."""
    if kind is Any:
        return value
    if kind in _PLAIN:
        return _plain(kind, value, where)
    if is_dataclass(kind):
        return _instance(kind, value, where)
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        return _alternative(inner, value, where)
    if origin is Literal:
        _require(value in inner, where, f"one of {', '.join(map(str, inner))}", value)
        return value
    if origin is tuple and inner[-1] is not ...:
        _require(isinstance(value, list | tuple) and len(value) == len(inner), where, f"{len(inner)} values", value)
        return tuple(_as(each, part, f"{where}[{i}]") for i, (each, part) in enumerate(zip(inner, value, strict=True)))
    if origin in (tuple, list, Sequence):
        _require(isinstance(value, list | tuple), where, "a list", value)
        kinds = set(map(type, value))
        if kinds <= _ROWS.get(inner[0], set()) and (int not in kinds or _are_short(value)):  # most of what is large
            return tuple(value)
        return tuple(_as(inner[0], part, f"{where}[{i}]") for i, part in enumerate(value))
    assert origin in (dict, Mapping), f"stored fields are plain, but one is {kind}"
    _require(isinstance(value, Mapping), where, "a mapping", value)
    return {str(key): _as(inner[1], part, _below(where, key)) for key, part in value.items()}


def _are_short(values: Sequence[Any]) -> bool:
    """Whether all whole numbers among some could be numbers with a point."""
    return all(each.bit_length() < 1024 for each in values if type(each) is int)


def _plain(kind: Any, value: Any, where: str) -> Any:
    what, accepted = _PLAIN[kind]
    _require(type(value) in accepted, where, what, value)
    if type(value) is int:
        _require(value.bit_length() <= _LONGEST if kind is int else value.bit_length() < 1024, where, what, value)
    return value


def _alternative(kinds: Sequence[Any], value: Any, where: str) -> Any:
    """`value` as the first of `kinds` that it is; the error is the last one's, which is not null's."""
    if value is None and type(None) in kinds:
        return None
    *first, last = [kind for kind in kinds if kind is not type(None)]
    for kind in first:
        try:
            return _as(kind, value, where)
        except CorruptFile:
            continue
    return _as(last, value, where)


def _instance(kind: Any, value: Any, where: str) -> Any:
    _require(isinstance(value, Mapping), where, "a mapping", value)
    found = {}
    for name, (annotation, needed) in _fields(kind).items():
        if name in value:
            found[name] = _as(annotation, value[name], _below(where, name))
        elif needed:
            raise CorruptFile(f"it lacks `{_below(where, name)}`")
    return kind(**found)


@lru_cache(maxsize=64)
def _fields(kind: Any) -> Mapping[str, tuple[Any, bool]]:
    """Field → its annotation, and whether it has no default."""
    hints = typing.get_type_hints(kind)
    needed = {each.name: each.default is MISSING and each.default_factory is MISSING for each in fields(kind)}
    return {name: (hints[name], needs) for name, needs in needed.items()}


def _below(where: str, name: object) -> str:
    return f"{where}.{name}" if where else str(name)


def _require(holds: bool, where: str, what: str, value: object) -> None:
    if not holds:
        raise CorruptFile(f"`{where}` must be {what}, but is {cut(quote(value), 60)}" if where else f"it is not {what}")
