"""Layer overrides (`model.layers`): from a list of changes for ranges of layers to one resolved node per layer."""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from swapformer.errors import UsageError, suggest
from swapformer.ranges import Count, check
from swapformer.study.config.alternatives import alternatives
from swapformer.training.assemble import LAYER_SIZES, LAYER_SLOTS
from swapformer.training.parameter_selection import layer_range

Node = dict[str, Any]


def expand_layers(model: Mapping[str, Any], load: Callable[[str, str], Node], key: str = "model.layers") -> list[Node]:
    """The differences between layers: one mapping per layer, or an empty list if nothing differs.

    `model.layers` is a list of `{at, …}`, later ones winning. `at` is a layer (`3`, `-1`) or a range (`"0:2"`,
    `"::2"`), counted as Python counts. The other keys are slots with an option's name (`pattern: window`), settings of
    a slot (`pattern.before: 7`), or sizes of a layer. The extensions are a list of names (`extension: [gate]`), their
    settings begin with the name (`extension.convolution.width: 5`). An attention that brings extensions (`attention:
    gated`) adds those of the list to its own. A setting takes the place of those that it is an alternative to
    (`ffn.expansion` of `ffn.width`), unless the same entry sets them.

    Args:
        model: the `model` node.
        load: what each slot that (slot, option) fills holds then.
        key: what the list is called in messages.

    Raises:
        UsageError: for a range without layers, an unknown key or option, or an attention that leaves open whether the
            model's extensions stay.
    """
    if not isinstance(model["layers"], Sequence) or isinstance(model["layers"], str):
        raise UsageError(f"`{key}` must be a list of overrides, but it is {model['layers']!r}.")
    if not model["layers"]:
        return []
    check(Count, model["num_layers"], f"{key.rpartition('.')[0]}.num_layers")
    layers: list[Node] = [{} for _ in range(model["num_layers"])]
    for override in model["layers"]:
        if not isinstance(override, Mapping) or "at" not in override:
            raise UsageError(f"every entry of `{key}` needs `at` and what to change there, but one is {override!r}.")
        chosen = layer_range(override["at"], len(layers))
        if not chosen:
            raise UsageError(
                f"`at` of `model.layers` must name some of the layers 0 … {len(layers) - 1}, such as 0, -1 or '0:2', "
                f"but it is {override['at']!r}."
            )
        changes = [(str(key), value) for key, value in override.items() if key != "at"]
        for key, value in sorted(changes, key=lambda change: ("." in change[0], change[0] == "extension")):
            for index in chosen:
                _apply(layers[index], model, key, value, load, override.keys())
    for layer in layers:
        for key in [key for key, value in layer.items() if model.get(key) == value]:
            del layer[key]
    return layers if any(layers) else []


def _apply(
    layer: Node,
    model: Mapping[str, Any],
    key: str,
    value: object,
    load: Callable[[str, str], Node],
    together: Collection[str],
) -> None:
    """Make one change in a layer; `together` are all keys of its entry."""
    slot, _, setting = key.partition(".")
    if key in LAYER_SIZES:
        layer[key] = value
    elif slot not in LAYER_SLOTS:
        hint = suggest(key, [*LAYER_SLOTS, *LAYER_SIZES])
        raise UsageError(f"`model.layers` can change slots and sizes of a layer, not {key!r}{hint}")
    elif setting:
        _set(layer.setdefault(slot, copy.deepcopy(dict(model[slot]))), slot, setting, value, together)
    elif slot == "extension":
        if not isinstance(value, Sequence) or isinstance(value, str):
            raise UsageError(f"`model.layers` names extensions in a list, such as `extension: [gate]`, not {value!r}.")
        layer[slot] = layer.get(slot, {}) if "attention" in together else {}
        for name in value:
            layer[slot] |= load(slot, str(name))[slot]
    elif not isinstance(value, str):
        raise UsageError(f"`model.layers` names an option for `{slot}`, such as `{slot}: NAME`, but it is {value!r}.")
    else:
        filled = load(slot, value)
        if slot == "attention":
            before, filled["extension"] = layer.get("extension", model["extension"]), filled.get("extension", {})
            if "extension" not in together and before and before != filled["extension"]:
                raise UsageError(
                    f"`model.layers` gives attention {value} to layers with the extensions {', '.join(before)}: say "
                    f"which extensions they have, `extension: []` or `extension: [{', '.join(before)}]`."
                )
        layer.update(filled)


def _set(node: Node, slot: str, setting: str, value: object, together: Collection[str]) -> None:
    """Change one setting of a layer's slot; one of an extension begins with its name."""
    if slot == "extension":
        name, _, setting = setting.partition(".")
        if name not in node:
            raise UsageError(
                f"`model.layers` changes the extension {name!r} of layers that have {', '.join(node) or 'none'}; add "
                f"it with `extension: [{name}]`."
            )
        node, slot = node[name], f"{slot}.{name}"
    if setting not in node or setting.startswith("_"):
        known = [name for name in node if not str(name).startswith("_")]
        raise UsageError(f"`{slot}` of `model.layers` has no setting {setting!r}{suggest(setting, known)}")
    for other in alternatives(node, setting) if value is not None else ():
        if f"{slot}.{other}" not in together:
            node[other] = None
    node[setting] = value
