"""Checkpoint formats: the configurations that they can express, and the names of their weights."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from swapformer.errors import UsageError, quote
from swapformer.interface import MAIN, Interface, Readout
from swapformer.interop.rules import Rule, Shapes
from swapformer.model.layers import Role
from swapformer.paths import conf_dir
from swapformer.yaml_reader import read_yaml

Config = Mapping[str, Any]


@dataclass(frozen=True)
class Setting:
    """One of our settings that a format stores in its config.json.

    Attributes:
        ours: its path within the `model` node, such as `norm.eps`; the slot itself where `options` are given.
        theirs: the keys of config.json that hold it, which must agree.
        default: its value if config.json has none of them, or a function of config.json; None if there is then nothing
            to set.
        options: config.json's word for each option of our slot; None if the value itself is stored.
    """

    ours: str
    theirs: tuple[str, ...]
    default: Any
    options: Mapping[str, str] | None = None

    def read(self, config: Config) -> str | None:
        """The override that sets it; None if there is nothing to set."""
        given = {key: config[key] for key in self.theirs if config.get(key) is not None}
        values = list(given.values()) or [self.default(config) if callable(self.default) else self.default]
        if any(value != values[0] for value in values):
            raise UsageError(
                f"{' and '.join(given)} of config.json must agree, for they are one setting here (model.{self.ours}), "
                f"but they are {' and '.join(map(str, values))}"
            )
        if values[0] is None:
            return None
        if self.options is None:
            if not isinstance(values[0], bool | int | float):
                raise UsageError(
                    f"{self.theirs[0]} of config.json must be a number, true or false, but it is {quote(values[0])}"
                )
            return f"model.{self.ours}={str(values[0]).lower() if isinstance(values[0], bool) else values[0]}"
        if not isinstance(values[0], str) or values[0] not in self.options:
            raise UsageError(
                f"{self.theirs[0]} of config.json must be one of {', '.join(self.options)}, but it is {values[0]!r}"
            )
        return f"model/{self.ours}={self.options[values[0]]}"

    def write(self, model: Config) -> dict[str, Any]:
        """The keys of config.json for a `model` node; none if it has no such setting."""
        value: Any = model
        for step in self.ours.split("."):
            if not isinstance(value, Mapping) or step not in value:
                return {}
            value = value[step]
        if self.options is not None:
            words = [word for word, option in self.options.items() if target(self.ours, option) == value["_target_"]]
            return dict.fromkeys(self.theirs, words[0]) if words else {}
        return dict.fromkeys(self.theirs, value)


def target(slot: str, option: str) -> str:
    """The class that an option of a model slot names."""
    node = read_yaml(conf_dir() / "model" / slot / f"{option}.yaml")
    return str(node["_target_"])


def symbols(config: Config) -> dict[str, Readout]:
    """The answer of a language model: the next symbol, or a masked one."""
    return {MAIN: Readout(config["vocab_size"])}


@dataclass(frozen=True)
class Variant:
    """One architecture of a family: the layers from which its answers are read.

    Attributes:
        architecture: its name in config.json.
        rules: the weights after the last layer.
        readouts: the answers, by config.json.
        keys: the keys of config.json about them, by the shapes of our weights.
    """

    architecture: str
    rules: tuple[Rule, ...]
    readouts: Callable[[Config], Mapping[str, Readout]] = symbols
    keys: Callable[[Shapes], dict[str, Any]] = lambda shapes: {}


@dataclass(frozen=True)
class Format:
    """A family of Hugging Face checkpoints.

    Attributes:
        name: its name on the command line, and config.json's model_type.
        parts: overrides that hold for every checkpoint of the format.
        settings: the settings that differ between them.
        required: keys of config.json that must have this value if they are present.
        harmless: keys of config.json that do not change what is computed in evaluation.
        rules: the weights up to the last layer.
        variants: the architectures, the richest first.
        prefix: a prefix of names of weights that files of a model without its head leave out.
        unprefixed: beginnings of names of weights that never have the prefix.
        renamed: parts of names in older files, with their present names.
        ignored: patterns of names of weights that are no parameters.
        filled: roles of weights that it always has, which are written as zeros for a model without them.
        segments: the key of config.json that counts segments; None without one.
        unread: leaves of our `model` node that do not change what is computed in evaluation.
        flat: translates nested and old keys of config.json before it is read.
        nested: the inverse, before it is written.
    """

    name: str
    parts: tuple[str, ...]
    settings: tuple[Setting, ...]
    required: Mapping[str, Any]
    harmless: tuple[str, ...]
    rules: tuple[Rule, ...]
    variants: tuple[Variant, ...]
    prefix: str
    unprefixed: tuple[str, ...]
    renamed: Mapping[str, str] = field(default_factory=dict)
    ignored: tuple[str, ...] = ()
    filled: tuple[Role, ...] = ()
    segments: str | None = None
    unread: tuple[str, ...] = ()
    flat: Callable[[Config], Config] = dict
    nested: Callable[[Config], Config] = dict

    def interface(self, config: Config, variant: Variant) -> Interface:
        """The inputs and answers of the model of a config.json."""
        segments = 0 if self.segments is None else config.get(self.segments, 2)
        return Interface(config["vocab_size"], segments=segments, readouts=variant.readouts(config))

    def overrides(self, config: Config) -> list[str]:
        """The overrides that make the model of a config.json.

        Raises:
            UsageError: if it requires a feature that swapformer lacks.
        """
        flat = self.flat(config)
        for key, value in self.required.items():
            if flat.get(key, value) != value:
                raise UsageError(f"{key} of config.json must be {value!r} for {self.name}, but it is {flat[key]!r}")
        found = [setting.read(flat) for setting in self.settings]
        return [*self.parts, *(override for override in found if override is not None)]

    def unknown(self, config: Config) -> list[str]:
        """Keys of config.json that are neither read nor known to be harmless."""
        known = {*self.required, *self.harmless, *COMMON, self.segments}
        known |= {key for setting in self.settings for key in setting.theirs}
        return sorted(key for key in self.flat(config) if key not in known)

    def config(self, model: Config) -> dict[str, Any]:
        """The config.json of a `model` node, as far as the format can express it."""
        foreign = tuple(f"{each.ours}." for each in self.settings if each.options and not each.write(model))
        own = [each for each in self.settings if not each.ours.startswith(foreign)]
        keys = {key: value for setting in own for key, value in setting.write(model).items()}
        unset = dict.fromkeys(("bos_token_id", "eos_token_id", "pad_token_id"))
        return {"model_type": self.name, **self.nested({**self.required, **keys}), **unset, "dtype": "float32"}


COMMON = (
    *("architectures", "model_type", "vocab_size", "dtype", "torch_dtype", "transformers_version", "_name_or_path"),
    *("bos_token_id", "eos_token_id", "pad_token_id", "initializer_range", "use_cache", "task_specific_params"),
    *("id2label", "num_labels", "problem_type", "output_attentions", "output_hidden_states", "return_dict"),
    *("label2id", "output_past", "gradient_checkpointing", "finetuning_task", "is_encoder_decoder"),
    "chunk_size_feed_forward",
)
"""Keys of every config.json that do not change what the model computes."""
