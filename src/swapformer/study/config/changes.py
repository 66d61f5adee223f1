"""Changes that a probe replays a trained model under: from overrides in its settings to resolved parts.

A probe's setting `changes` maps names to lists of overrides. Probes know nothing of Hydra, and an artifact is known by
its probe's settings; so each override is expanded here, before anything is launched, and what the settings hold then is
what becomes of the configuration:

    model/pattern=window          an option of a slot of the model
    model.pattern.before=3        a setting of the model; `model.layers` as in a configuration, on top of its own
    model/extension=[head_mask]   the extensions; those that the model has already keep their settings
    task.eval_lengths=[64]        a setting of the task
    offset=100                    positions as encodings see them: 100 more
    stride=2                      positions as encodings see them: twice as far apart
    without=[l0h3]                heads whose output is taken as zero, counted from layer 0 and head 0
    without=each                  one variant for each head
    model.pattern.before=1,2,4    one variant for each number, as Hydra sweeps
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException

from swapformer.errors import UsageError, cut, quote, suggest
from swapformer.study.config.cost import TASKS, task_key
from swapformer.study.config.layers import expand_layers
from swapformer.training.assemble import SLOTS, build_task

Node = dict[str, Any]
Load = Callable[[str, str], Node]

KEY = "changes"
"""The setting of a probe that holds changes."""
MOST = 512
"""Variants of one change."""
_POSITIONS = ("offset", "stride")
_HEADS = "without"


def resolve_changes(config: Node, load: Load) -> None:
    """Expand the changes of every probe of a resolved configuration, in place.

    Each change becomes a mapping from the label of a variant, empty where there is one, to changed parts: entries of
    `model` and `task`, `data`, `offset` and `stride`.

    Args:
        config: but for its changes, resolved.
        load: what each slot that an option of a model slot fills holds then.

    Raises:
        UsageError: for a change that is not understood, or changes nothing.
    """
    known: dict[tuple[str, str], Node] = {}

    def option(slot: str, name: str) -> Node:
        if (slot, name) not in known:
            known[slot, name] = load(slot, name)
        return copy.deepcopy(known[slot, name])

    for probe, node in config["probes"].items():
        if isinstance(node, dict) and isinstance(node.get(KEY), Mapping):
            node[KEY] = {
                _name(name, f"probes.{probe}.{KEY}"): _variants(config, given, option, f"probes.{probe}.{KEY}.{name}")
                for name, given in node[KEY].items()
            }


def _name(name: object, where: str) -> str:
    if not re.fullmatch(r"[A-Za-z_][\w.-]*", str(name)):
        raise UsageError(f"names in `{where}` must begin with a letter and hold no @ or /, but one is {quote(name)}")
    return str(name)


def _variants(config: Node, given: object, load: Load, where: str) -> dict[str, Node]:
    if not isinstance(given, list) or not given or not all(isinstance(each, str) for each in given):
        raise UsageError(
            f"`{where}` must be a list of overrides in quotes, such as ['model/pattern=window', "
            f"'model.pattern.before=3'], but it is {quote(given)}"
        )
    overrides = _parsed(given, where)
    swept = [each for each in overrides if each.is_sweep_override()]
    each_head = [each for each in overrides if each.key_or_group == _HEADS and each.value() == "each"]
    if len(swept) + len(each_head) > 1:
        raise UsageError(f"`{where}` may sweep one setting, but sweeps several; make several changes of it")
    labelled: dict[str, Node] = {"": {}}
    if each_head:
        labelled = {label: {_HEADS: [label]} for label in _heads(config["model"])}
    elif swept:
        labelled = {str(value): {swept[0].key_or_group: value} for value in _numbers(swept[0], where)}
    found = {}
    for label, values in labelled.items():
        changed = _Changed(config, load, where)
        for each in overrides:
            changed.apply(each.key_or_group, _value(each, values))
        found[label] = changed.parts(label)
    return found


def _parsed(given: Sequence[str], where: str) -> list[Override]:
    try:
        found = OverridesParser.create().parse_overrides(list(given))
    except HydraException as error:
        problem = cut(str(error).splitlines()[0], 80)
        raise UsageError(f"`{where}` holds overrides, but one is not understood: {problem}") from None
    for each in found:
        if each.is_add() or each.is_delete() or each.package is not None:
            raise UsageError(
                f"`{where}` changes what is there, so {quote(each.input_line)} must have the form KEY=VALUE"
            )
    return found


def _value(override: Override, swept: Mapping[str, Any]) -> Any:
    return swept[override.key_or_group] if override.key_or_group in swept else override.value()


def _numbers(override: Override, where: str) -> list[int]:
    given: list[Any] = list(override.sweep_iterator())
    values = [value for value in given if isinstance(value, int) and not isinstance(value, bool) and value >= 0]
    if len(values) < len(given):
        raise UsageError(f"`{where}` must sweep whole numbers of at least 0, but sweeps {quote(given)}")
    if len(set(values)) < max(len(values), 2) or len(values) > MOST:
        raise UsageError(f"`{where}` must sweep 2 to {MOST} different numbers, but sweeps {quote(values)}")
    return sorted(values)


def _heads(model: Node) -> Iterator[str]:
    layers = model["layers"] or [{}] * model["num_layers"]
    for index, layer in enumerate(layers):
        yield from (f"l{index}h{head}" for head in range(layer.get("num_heads", model["num_heads"])))


class _Changed:
    """A configuration to which changes are made, one after the other."""

    def __init__(self, config: Node, load: Load, where: str) -> None:
        self.config, self.load, self.where = config, load, where
        self.model, self.task = copy.deepcopy(config["model"]), copy.deepcopy(config["task"])
        self.positions: dict[str, int] = {}

    def apply(self, key: str, value: Any) -> None:
        """Make one change."""
        first, _, rest = key.partition("/")
        if first == "model" and rest:
            self._choose(rest, value)
        elif key in _POSITIONS:
            if not isinstance(value, int) or isinstance(value, bool) or value < (key == "stride"):
                raise UsageError(f"`{key}` of {self.where} must be a whole number, but it is {quote(value)}")
            self.positions[key] = value
        elif key == _HEADS:
            self._mask(value)
        elif key == "model.layers":
            self._merge(expand_layers({**self.model, "layers": value}, self.load, f"{self.where}.model.layers"))
        elif key.startswith(("model.", "task.")):
            self._set(key, value)
        else:
            known = ("model/SLOT", "model.KEY", "task.KEY", *_POSITIONS, _HEADS)
            raise UsageError(f"`{self.where}` can change {', '.join(known)}, but not {quote(key)}{suggest(key, known)}")

    def parts(self, label: str) -> Node:
        """The settings that differ, resolved."""
        parts: Node = {
            name: {key: value for key, value in changed.items() if self.config[name].get(key) != value}
            for name, changed in (("model", self.model), ("task", self.task))
        }
        if parts["task"]:
            changed = {**self.config, "task": self.task}
            task = build_task(changed)
            changed["data"] = parts["data"] = task.fingerprint()
            TASKS[task_key(changed)] = task
        neutral = {"offset": 0, "stride": 1}
        parts |= {key: value for key, value in self.positions.items() if value != neutral[key]}
        found = {key: value for key, value in parts.items() if value}
        if not found and not label:
            raise UsageError(f"`{self.where}` changes nothing: what it sets is what the trial has; take it out")
        return found

    def _choose(self, slot: str, value: Any) -> None:
        if slot not in SLOTS:
            hint = suggest(slot, SLOTS)
            raise UsageError(f"`{self.where}` chooses options of slots, but there is no slot {quote(slot)}{hint}")
        if slot == "extension":
            names, before = value if isinstance(value, list) else [value], self.model[slot]
            self.model[slot] = {name: before.get(name) or self.load(slot, str(name))[slot][name] for name in names}
        else:
            self.model.update(self.load(slot, str(value)))

    def _mask(self, value: Any) -> None:
        """Take the output of some heads as zero, in the layers where they are."""
        known = list(_heads(self.model))
        names = value if isinstance(value, list) else [value]
        if wrong := [name for name in names if name not in known]:
            raise UsageError(
                f"`{_HEADS}` of {self.where} must be each, or name heads from {known[0]} to {known[-1]}, but it names "
                f"{quote(wrong[0])}"
            )
        node, layers = self.load("extension", "head_mask")["extension"]["head_mask"], list[Node]()
        for index, own in enumerate(self.model["layers"] or [{}] * self.model["num_layers"]):
            heads = [int(name.partition("h")[2]) for name in names if name.startswith(f"l{index}h")]
            there = own.get("extension", self.model["extension"])
            mask = {**node, "heads": sorted({*there.get("head_mask", {}).get("heads", []), *heads})}
            layers.append({**own, "extension": {**there, "head_mask": mask}} if heads else own)
        self.model["layers"] = layers

    def _merge(self, layers: Sequence[Node]) -> None:
        own = self.model["layers"] or [{}] * self.model["num_layers"]
        if layers:
            self.model["layers"] = [before | after for before, after in zip(own, layers, strict=True)]

    def _set(self, key: str, value: Any) -> None:
        first, *path, last = key.split(".")
        node: Any = {"model": self.model, "task": self.task}[first]
        for step in (*path, last):
            if not isinstance(node, dict) or step not in node or step.startswith("_"):
                hint = suggest(step, node) if isinstance(node, dict) else ""
                raise UsageError(f"`{self.where}` sets {key}, but there is no {quote(step)}{hint}")
            parent, node = node, node[step]
        if isinstance(node, dict):
            raise UsageError(f"`{self.where}` sets {key}, which holds {', '.join(node)}; set one of them")
        parent[last] = json.loads(json.dumps(value))
