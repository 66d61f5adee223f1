"""`swapformer check`: tests a part, ours or the user's own, or a whole model against the laws."""

from __future__ import annotations

import argparse
import importlib
import inspect
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import yaml
from torch import nn

from swapformer.catalogue import filled
from swapformer.conformance import FIRST, LAWS, LawVerdict, examine
from swapformer.conformance.signature import settings_of
from swapformer.console import CommandLine
from swapformer.errors import UsageError, suggest
from swapformer.study.config.compose import compose
from swapformer.targets import trusting
from swapformer.tools.command_line import add_common
from swapformer.training.assemble import SLOTS
from swapformer.yaml_reader import parse_yaml, reason

SMALL = ["task=copy", "model.num_layers=2", "model.d_model=32", "model.num_heads=4", "model.max_len=320"]
"""Sizes at which every law is quick."""

_SIGNS = {True: "✓ holds  ", False: "✗ broken ", None: "· n/a    "}


def main(arguments: Sequence[str]) -> int:
    """Print each law with pass or fail and what to do; 1 if one is broken."""
    if arguments[:1] == ["pairs"]:
        raise UsageError("check pairs is gone: it is `python -m pytest -m evidence tests/evidence/test_pairs.py` now")
    options = parser().parse_intermixed_args(arguments)
    with trusting(options.part.partition(".")[0]) if "=" not in options.part else nullcontext():
        slot, config = _subject(options.part, options.slot, options.overrides)
        verdicts = examine(config, slot)
    if options.json:
        print(json.dumps([vars(verdict) for verdict in verdicts], indent=1))
    else:
        print("\n".join([*_lines(verdicts), "", _summary(verdicts)]))
    return int(any(verdict.holds is False for verdict in verdicts))


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = CommandLine(
        prog="swapformer check",
        description="Hold a part, or a whole model of your own, to the laws that all obey.",
    )
    made.add_argument(
        "part", help="model/position=alibi, or a class of your own: my_package.MyPosition, my_package.GPT"
    )
    made.add_argument(
        "overrides", nargs="*", metavar="OVERRIDE", help="as for swapformer train; settings of your class: base=10.0"
    )
    made.add_argument("--slot", choices=SLOTS, help="the slot that a class of your own fills")
    return add_common(made)


def _subject(part: str, slot: str | None, overrides: Sequence[str]) -> tuple[str, Mapping[str, Any]]:
    """The slot of the part, and a small configuration that contains it."""
    if "=" in part:
        group, _, _ = part.partition("=")
        name = group.removeprefix("model/")
        if name not in SLOTS or not group.startswith("model/"):
            hint = suggest(name, SLOTS)
            raise UsageError(f"a part is named by its slot, such as model/position=alibi, but {part!r} is not{hint}")
        return name, compose([*SMALL, part, *overrides])
    target = _importable(part)
    if slot is None and issubclass(target, nn.Module) and not target.__module__.startswith("swapformer."):
        if any(base.__module__.startswith("swapformer.model.") for base in target.__mro__):
            raise UsageError(f"a class of your own needs its slot, such as `swapformer check {part} --slot position`.")
        own = [name if "." in name.partition("=")[0] else f"model.module.{name}" for name in overrides]
        whole = [*SMALL, "model=own", f"model.module._target_={part}", *own]
        return "topology", compose(whole)
    if slot is None:
        raise UsageError(f"a class of your own needs its slot, such as `swapformer check {part} --slot position`.")
    names = settings_of(slot, target)
    others = [override for override in overrides if override.partition("=")[0] not in names]
    config = compose([*SMALL, *others])
    given = dict(override.split("=", 1) for override in overrides if override not in others)
    node = {
        "_target_": part,
        "_partial_": True,
        "_convert_": "all",
        **_own_settings(target, names, given),
        **{name: _node(slot, given[name]) for name in getattr(target, "combines", ()) if name in given},
    }
    config["model"][slot] = filled(slot, target.__name__.lower(), node)
    return slot, config


def _importable(name: str) -> type:
    module, _, attribute = name.rpartition(".")
    try:
        found = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise UsageError(f"the class to check must be importable from here, but {name!r} is not: {error}") from error
    if not inspect.isclass(found):
        raise UsageError(f"the part to check must be a class, but {name!r} is {type(found).__name__}.")
    return found


def _own_settings(target: type, names: set[str], given: Mapping[str, str]) -> dict[str, Any]:
    """The class's own settings: those given, read as YAML, else their defaults.

    Raises UsageError for a setting that has neither.
    """
    try:
        own = {name: parse_yaml(value) for name, value in given.items()}
    except (ValueError, yaml.YAMLError) as error:
        raise UsageError(f"settings must be KEY=VALUE, but one cannot be read: {reason(error)}") from None
    for name, parameter in inspect.signature(target).parameters.items():
        if name in names and name not in own and parameter.default is not parameter.empty:
            own[name] = parameter.default
    if missing := sorted(names - own.keys()):
        raise UsageError(f"{target.__name__} needs its settings, such as {missing[0]}=…; missing: {', '.join(missing)}")
    return own


def _node(slot: str, name: str) -> Any:
    """The settings of an option, for a part that combines others of its slot: first=alibi."""
    return compose([*SMALL, f"model/{slot}={name}"])["model"][slot]


def _lines(verdicts: Sequence[LawVerdict]) -> list[str]:
    """A line for each law, up to a broken one without which the others mean nothing; one where none was asked."""
    broken = (count for count, verdict in enumerate(verdicts, 1) if verdict.holds is False and verdict.law in FIRST)
    stop = next(broken, None) if any(verdict.holds is not None for verdict in verdicts) else 1
    width = max(map(len, LAWS))
    return [f"{_SIGNS[v.holds]} {v.law:{width}}  {v.message}".rstrip() for v in verdicts[:stop]]


def _summary(verdicts: Sequence[LawVerdict]) -> str:
    counts = Counter(verdict.holds for verdict in verdicts)
    return f"laws: {counts[True]} hold, {counts[False]} broken, {counts[None]} not asked"
