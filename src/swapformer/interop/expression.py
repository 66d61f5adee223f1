"""The nearest model that a checkpoint format can express, and how one of our models differs from it."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from swapformer.interop.format import Format
from swapformer.interop.rules import Shapes
from swapformer.study.config.compose import compose
from swapformer.training.assemble import factory

UNREAD = ("init", "kernel", "encoder", "ffn.expansion", "ffn.drop_hidden", "ffn.drop_output")
"""Leaves of a `model` node that do not change what a trained model computes; its width is read from its weights."""


def composed(overrides: Sequence[str]) -> dict[str, Any]:
    """The configuration that overrides make; its task is arbitrary."""
    return compose(["task=copy", *overrides])


def express(
    format: Format, model: Mapping[str, Any], shapes: Shapes
) -> tuple[dict[str, Any], dict[str, Any], list[str]]:
    """Express a `model` node: the nearest config.json, the node that it means, and the differences in words."""
    own = _explicit(model, shapes)
    theirs = format.config(own)
    reference: dict[str, Any] = composed(format.overrides(theirs))["model"]
    return theirs, reference, list(_lacks(format, own, _explicit(reference, shapes)))


def _explicit(model: Mapping[str, Any], shapes: Shapes) -> dict[str, Any]:
    """A `model` node with the sizes that follow from others filled in."""
    node = copy.deepcopy(dict(model))
    node["head_dim"] = node["head_dim"] or node["d_model"] // node["num_heads"]
    if "num_kv_heads" in node["attention"]:
        node["attention"]["num_kv_heads"] = node["attention"]["num_kv_heads"] or node["num_heads"]
    if "width" in node["ffn"] and (up := shapes.get("stack.layers.0.ffn.up.weight")) is not None:
        node["ffn"]["width"] = node["ffn"]["width"] or up[0]
    return node


def _lacks(format: Format, model: Mapping[str, Any], reference: Mapping[str, Any]) -> Iterator[str]:
    """The settings in which a model differs from the nearest one that a format can express."""
    unbiased = ("bias",) if format.filled and not model["bias"] else ()
    unread = {*UNREAD, *format.unread, *unbiased}
    for slot, own in model.items():
        if slot in unread or own == reference[slot]:
            continue
        if slot == "extension":
            kinds: dict[str, Any] = {name: factory(part).func for name, part in own.items()}
            acting = [name for name, kind in kinds.items() if not kind.training_only]
            yield from (f"model.extension has {name}, which the format does not" for name in acting)
            continue
        if not isinstance(own, Mapping):
            yield f"model.{slot} is {own}, not {reference[slot]}"
        elif own["_target_"] != reference[slot]["_target_"]:
            yield "model.{} is {}, not {}".format(
                slot, *(node["_target_"].rpartition(".")[2] for node in (own, reference[slot]))
            )
        else:
            other = reference[slot]
            changed = [key for key in own if own[key] != other.get(key) and f"{slot}.{key}" not in unread]
            yield from (f"model.{slot}.{key} is {own[key]}, not {other.get(key)}" for key in changed)
