"""The law about a part's class: its base, its signature and the settings in its YAML."""

from __future__ import annotations

import inspect
from importlib import import_module
from typing import Any

from swapformer.conformance.subject import Subject, require

PASSED = {"topology": {"plan"}, "block": {"branches", "sublayer"}}
"""Arguments of a slot's parts beside the sizes, the parts that they use and their settings."""


def is_a_part(subject: Subject) -> None:
    """The part is a concrete class of its slot, `Part(dims, *, its settings)`, and its YAML holds every setting."""
    part, base = subject.part, slot_base(subject.slot)
    require(
        inspect.isclass(part) and issubclass(part, base),
        f"a part of the slot {subject.slot} must inherit from {base.__module__}.{base.__name__}, but "
        f"{part.__name__} does not.",
    )
    missing = ", ".join(sorted(getattr(part, "__abstractmethods__", ())))
    require(not missing, f"a part must be a concrete class, but {part.__name__} does not define {missing}.")
    first, *rest = inspect.signature(part).parameters.values()
    own = [
        parameter.name for parameter in rest if parameter.kind not in (parameter.KEYWORD_ONLY, parameter.VAR_KEYWORD)
    ]
    required = "plan" if subject.slot == "topology" else "dims"
    require(
        first.name == required and not own,
        f"a part must be made as {part.__name__}({required}, *, its settings), but it is made as "
        f"{part.__name__}{inspect.signature(part)}: {required} first, and a `*` before what can be set.",
    )
    settings, given = settings_of(subject.slot, part), {key for key in subject.node if not key.startswith("_")}
    unset, unknown = ", ".join(sorted(settings - given)), ", ".join(sorted(given - settings))
    require(not unset, f"every setting must be in the part's YAML, but it lacks {unset}.")
    require(not unknown, f"the part's YAML must hold its settings alone, but {part.__name__} takes no {unknown}.")


def slot_base(slot: str) -> type:
    """The base class of a slot, which has the slot's name, such as `QKNorm` for qk_norm."""
    home = import_module(f"swapformer.model.{slot}")
    named = (value for name, value in vars(home).items() if name.lower() == slot.replace("_", ""))
    return next(value for value in named if inspect.isclass(value))


def settings_of(slot: str, part: Any) -> set[str]:
    """The names of a part's settings, without the arguments that are passed to it."""
    passed = {*getattr(part, "uses", ()), *PASSED.get(slot, ())}
    parameters = list(inspect.signature(part).parameters.values())[1:]
    return {p.name for p in parameters if p.kind is not p.VAR_KEYWORD and p.name not in passed}
