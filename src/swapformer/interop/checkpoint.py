"""Checkpoints of Hugging Face `transformers`: theirs as a model of ours, and a model of ours as theirs."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from swapformer.errors import UsageError, suggest
from swapformer.interop import files
from swapformer.interop.format import Format
from swapformer.interop.gpt2 import GPT2
from swapformer.interop.llama import LLAMA
from swapformer.interop.rules import for_layers, read, write
from swapformer.model.layers import Role, origin_of
from swapformer.study.config import compose
from swapformer.training.assemble import build_plan, factory
from swapformer.training.selection import readout

FORMATS = {format.name: format for format in (GPT2, LLAMA)}
"""The formats by name."""

UNREAD = ("init", "kernel", "ffn.expansion", "ffn.drop_hidden", "ffn.drop_output")
"""Leaves of a `model` node that do not change what a trained model computes; its width is read from its weights."""


@dataclass(frozen=True)
class Checkpoint:
    """A model from outside.

    Attributes:
        overrides: what makes the same model here.
        vocab_size: symbols that its embeddings hold.
        weights: by our names.
        readout: the names of those behind the layers.
        notes: what its user should know.
    """

    overrides: tuple[str, ...]
    vocab_size: int
    weights: dict[str, Tensor]
    readout: frozenset[str]
    notes: tuple[str, ...]


def load(directory: Path) -> Checkpoint:
    """Read a checkpoint.

    Raises:
        UsageError: if it is none, of no known format, asks for what swapformer does not have, or its weights do not
            fit its configuration.
    """
    config = files.read_config(directory)
    format = _format_of(config)
    overrides = format.overrides(config)
    vocab_size = config.get("vocab_size")
    if not isinstance(vocab_size, int):
        raise UsageError(f"vocab_size of config.json must be a whole number, but it is {vocab_size!r}")
    composed = _composed(overrides)
    model = _empty(composed, vocab_size)
    shapes = {name: weight.shape for name, weight in model.state_dict().items()}
    rules = for_layers(format.rules, composed["model"]["num_layers"])
    weights = read(rules, dict(_named(format, files.read_weights(directory))), shapes)
    unknown = format.unknown(config)
    notes = (f"keys of config.json that were not read: {', '.join(unknown)}",) if unknown else ()
    return Checkpoint(tuple(overrides), vocab_size, weights, frozenset(readout(model)), notes)


def save(config: Mapping[str, Any], weights: Mapping[str, Tensor], directory: Path, name: str) -> tuple[str, ...]:
    """Write a model of ours as a checkpoint, and return what its user should know.

    Args:
        config: the resolved configuration of its trial.
        weights: by our names.
        directory: where to, made if it is not there.
        name: of the format.

    Raises:
        UsageError: if the format cannot express the model, naming what it lacks.
    """
    if name not in FORMATS:
        raise UsageError(f"no format {name!r}{suggest(name, FORMATS)}")
    format, vocab_size = FORMATS[name], weights["embedding.weight"].shape[0]
    theirs, reference = _expressed(format, config["model"], vocab_size)
    if lacks := list(_lacks(format, config["model"], reference, vocab_size)):
        others = [other for other in FORMATS.values() if other is not format and _expresses(other, config, vocab_size)]
        hint = f"; {others[0].name} can" if others else ""
        raise UsageError(f"the format {name} cannot express this model: {'; '.join(lacks)}{hint}")
    whole = _empty({"model": reference}, vocab_size)
    missing = {key: weight for key, weight in whole.named_parameters() if key not in weights}
    assert all(origin_of(key, weight).role is Role.BIAS for key, weight in missing.items()), missing.keys()
    filled = {**weights, **{key: torch.zeros(weight.shape) for key, weight in missing.items()}}
    files.write(directory, theirs, write(for_layers(format.rules, reference["num_layers"]), filled))
    return (f"{len(missing)} biases that the model does not have were written as zeros",) if missing else ()


def _format_of(config: Mapping[str, Any]) -> Format:
    for format in FORMATS.values():
        if config.get("model_type") == format.model_type:
            return format
    known = ", ".join(format.model_type for format in FORMATS.values())
    raise UsageError(f"model_type of config.json must be one of {known}, but it is {config.get('model_type')!r}")


def _named(format: Format, weights: Mapping[str, Tensor]) -> Iterator[tuple[str, Tensor]]:
    """Weights under the names of a model with its head, without what is no parameter."""
    bare = not any(name.startswith(format.prefix) for name in weights)
    for name, tensor in weights.items():
        full = f"{format.prefix}{name}" if bare and name not in format.beside else name
        if not any(re.fullmatch(pattern, full) for pattern in format.ignored):
            yield full, tensor


def _composed(overrides: Sequence[str]) -> dict[str, Any]:
    """The configuration that overrides make; the task, which must be some, says nothing of the model."""
    return compose(["task=copy", *overrides])


def _empty(config: Mapping[str, Any], vocab_size: int) -> nn.Module:
    """The model of a configuration, without memory."""
    try:
        with torch.device("meta"):
            model: nn.Module = factory(config["model"]["topology"])(build_plan(config, vocab_size))
    except ValueError as error:
        raise UsageError(str(error)) from error
    return model


def _explicit(model: Mapping[str, Any], vocab_size: int) -> dict[str, Any]:
    """A `model` node in which sizes that follow from others are worked out."""
    node = copy.deepcopy(dict(model))
    node["head_dim"] = node["head_dim"] or node["d_model"] // node["num_heads"]
    if "num_kv_heads" in node["attention"]:
        node["attention"]["num_kv_heads"] = node["attention"]["num_kv_heads"] or node["num_heads"]
    up = _empty({"model": model}, vocab_size).state_dict().get("stack.layers.0.ffn.up.weight")
    if up is not None and "width" in node["ffn"]:
        node["ffn"]["width"] = up.shape[0]
    return node


def _expressed(format: Format, model: Mapping[str, Any], vocab_size: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """The config.json that comes nearest to a `model` node, and the node that it stands for."""
    theirs = format.config(_explicit(model, vocab_size), vocab_size)
    reference: dict[str, Any] = _composed(format.overrides(theirs))["model"]
    return theirs, reference


def _expresses(format: Format, config: Mapping[str, Any], vocab_size: int) -> bool:
    _, reference = _expressed(format, config["model"], vocab_size)
    return not list(_lacks(format, config["model"], reference, vocab_size))


def _lacks(format: Format, model: Mapping[str, Any], reference: Mapping[str, Any], vocab_size: int) -> Iterator[str]:
    """What a model is or has and its nearest relative in a format is not or has not."""
    unread = {*UNREAD, *format.unread, *(("bias",) if format.biased and not model["bias"] else ())}
    mine, theirs = _explicit(model, vocab_size), _explicit(reference, vocab_size)
    for slot, own in mine.items():
        if slot in unread or own == theirs[slot]:
            continue
        if not isinstance(own, Mapping):
            yield f"model.{slot} is {own}, not {theirs[slot]}"
        elif own["_target_"] != theirs[slot]["_target_"]:
            names = (node["_target_"].rpartition(".")[2] for node in (own, theirs[slot]))
            yield "model.{} is {}, not {}".format(slot, *names)
        else:
            changed = [key for key in own if own[key] != theirs[slot].get(key) and f"{slot}.{key}" not in unread]
            yield from (f"model.{slot}.{key} is {own[key]}, not {theirs[slot].get(key)}" for key in changed)
