"""Import and export of whole checkpoints of Hugging Face `transformers`: configuration and weights."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from swapformer.errors import UsageError, suggest
from swapformer.interface import Interface
from swapformer.interop import files
from swapformer.interop.bert import BERT
from swapformer.interop.expression import composed, express
from swapformer.interop.format import Format, Variant
from swapformer.interop.gpt2 import GPT2
from swapformer.interop.llama import LLAMA
from swapformer.interop.rules import Shapes, Weights, for_layers, read, write
from swapformer.model.layers import origin_of
from swapformer.model.topology import Topology
from swapformer.training.assemble import build_plan, factory
from swapformer.training.parameter_selection import readout_parameters

FORMATS = {format.name: format for format in (GPT2, BERT, LLAMA)}
"""The formats by name."""


@dataclass(frozen=True)
class Checkpoint:
    """A model that was read from a checkpoint.

    Attributes:
        architecture: its name in the other library.
        overrides: the overrides that make the same model here.
        interface: its inputs and answers.
        weights: its weights by our names.
        readout: the names of the weights after the last layer.
        notes: remarks for the user.
    """

    architecture: str
    overrides: tuple[str, ...]
    interface: Interface
    weights: dict[str, Tensor]
    readout: frozenset[str]
    notes: tuple[str, ...]

    @property
    def heads(self) -> int:
        """How many a layer has."""
        return int(next(each for each in self.overrides if each.startswith("model.num_heads=")).partition("=")[2])


def load(directory: Path) -> Checkpoint:
    """Read a checkpoint.

    Raises:
        UsageError: if it is no checkpoint, of no known format, requires a feature that swapformer lacks, or its weights
            do not fit its configuration.
    """
    config = files.read_config(directory)
    kind = config.get("model_type")
    if kind not in FORMATS:
        raise UsageError(f"model_type of config.json must be one of {', '.join(FORMATS)}, but it is {kind!r}")
    if not isinstance(config.get("vocab_size"), int):
        raise UsageError(f"vocab_size of config.json must be a whole number, but it is {config.get('vocab_size')!r}")
    format = FORMATS[kind]
    overrides = format.overrides(config)
    theirs = dict(_full_names(format, files.read_weights(directory)))
    variant = _variant_of(format, theirs)
    interface, ours = format.interface(config, variant), composed(overrides)
    model = _empty(ours, interface)
    rules = for_layers([*format.rules, *variant.rules], ours["model"]["num_layers"])
    known = {name for rule in rules for name in rule.ours}
    shapes = {name: weight.shape for name, weight in model.state_dict().items() if name in known}
    unknown = format.unknown(config)
    notes = (f"keys of config.json that were not read: {', '.join(unknown)}",) if unknown else ()
    weights = read(rules, theirs, shapes)
    readout_names = frozenset(name for name in readout_parameters(model) if name in weights)
    return Checkpoint(variant.architecture, tuple(overrides), interface, weights, readout_names, notes)


def save(config: Mapping[str, Any], weights: Weights, directory: Path, name: str) -> tuple[str, ...]:
    """Write one of our models as a checkpoint, and return remarks for the user.

    Args:
        config: the resolved configuration of its trial.
        weights: the weights by our names.
        directory: the destination, made if it does not exist.
        name: name of the format.

    Raises:
        UsageError: if the format cannot express the model, with the settings that it lacks.
    """
    if name not in FORMATS:
        raise UsageError(f"no format {name!r}{suggest(name, FORMATS)}")
    format, shapes = FORMATS[name], {key: weight.shape for key, weight in weights.items()}
    if "embedding.bias" in shapes:
        raise UsageError(f"the format {name} reads symbols, but this model reads values; no format does")
    theirs, reference, lacks = express(format, config["model"], shapes)
    if lacks:
        others = [other.name for other in FORMATS.values() if not express(other, config["model"], shapes)[2]]
        hint = f"; {' and '.join(others)} can" if others else ""
        raise UsageError(f"the format {name} cannot express this model: {'; '.join(lacks)}{hint}")
    variant = _variant_for(format, shapes)
    theirs |= {"architectures": [variant.architecture], "vocab_size": shapes["embedding.weight"][0]}
    theirs |= variant.keys(shapes)
    if format.segments is not None:
        theirs[format.segments] = shapes["segments.weight"][0] if "segments.weight" in shapes else 2
    model = _empty({"model": reference}, format.interface(theirs, variant))
    missing = {key: weight.shape for key, weight in model.named_parameters() if key not in weights}
    assert all(origin_of(key, model.get_parameter(key)).role in format.filled for key in missing), missing
    filled = {**weights, **{key: torch.zeros(shape) for key, shape in missing.items()}}
    rules = for_layers([*format.rules, *variant.rules], reference["num_layers"])
    files.write(directory, theirs, write(rules, filled))
    notes = [f"{len(missing)} tensors that the model does not have were written as zeros"] if missing else []
    return (f"written as {variant.architecture}", *notes)


def _full_names(format: Format, weights: Weights) -> Iterator[tuple[str, Tensor]]:
    """Weights under the names of a model with its head, without tensors that are no parameters."""
    bare = not any(name.startswith(format.prefix) for name in weights)
    for name, tensor in weights.items():
        full = f"{format.prefix}{name}" if bare and not name.startswith(format.unprefixed) else name
        for old, new in format.renamed.items():
            full = full.replace(old, new)
        if not any(re.fullmatch(pattern, full) for pattern in format.ignored):
            yield full, tensor


def _variant_of(format: Format, theirs: Weights) -> Variant:
    """The variant that fits a file best: most of its tensors are there, and fewest are missing."""

    def fit(variant: Variant) -> int:
        present = [any(name in theirs for name in rule.names) for rule in variant.rules if _required(rule.ours)]
        return 2 * sum(present) - len(present)

    return max(format.variants, key=fit)


def _variant_for(format: Format, ours: Shapes) -> Variant:
    """The variant that has all of our weights after the last layer.

    Raises:
        UsageError: if no variant has them.
    """
    of_layers = {name.split(".")[0] for rule in format.rules for name in rule.ours}
    after = {name for name in ours if name.split(".")[0] not in of_layers}
    for variant in format.variants:
        known = {name for rule in variant.rules for name in rule.ours}
        if after <= known and all(name in after for name in known if _required((name,))):
            return variant
    raise UsageError(
        f"the format {format.name} has no tensor for {', '.join(sorted(after))}; it knows "
        f"{', '.join(variant.architecture for variant in format.variants)}"
    )


def _required(ours: Sequence[str]) -> bool:
    """Whether every model of a variant has these weights; a matrix for symbols may be the embedding table."""
    return "head.weight" not in ours


def _empty(config: Mapping[str, Any], interface: Interface) -> Topology:
    """The model of a configuration on the meta device, without memory."""
    try:
        with torch.device("meta"):
            model: Topology = factory(config["model"]["topology"])(build_plan(config, interface))
    except ValueError as error:
        raise UsageError(str(error)) from error
    return model
