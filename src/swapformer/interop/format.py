"""What a checkpoint format is: which configurations it can express, and where it keeps which weight."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml

from swapformer.errors import UsageError
from swapformer.interface import MAIN, Interface, Readout
from swapformer.interop.rules import Rule, Shapes
from swapformer.model.layers import Role
from swapformer.paths import conf_dir

Config = Mapping[str, Any]


@dataclass(frozen=True)
class Setting:
    """A setting of ours that a format keeps in its config.json.

    Attributes:
        ours: its path within the `model` node, such as `norm.eps`; the slot itself where `options` are given.
        theirs: the keys that hold it, which must agree.
        default: its value where config.json has none of them; a function of config.json where that depends; None where
            there is then nothing to set.
        options: their word for each option of our slot; None where the value itself is kept.
    """

    ours: str
    theirs: tuple[str, ...]
    default: Any
    options: Mapping[str, str] | None = None

    def read(self, config: Config) -> str | None:
        """The override that sets it; None where there is nothing to set."""
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
            return f"model.{self.ours}={str(values[0]).lower() if isinstance(values[0], bool) else values[0]}"
        if values[0] not in self.options:
            raise UsageError(
                f"{self.theirs[0]} of config.json must be one of {', '.join(self.options)}, but it is {values[0]!r}"
            )
        return f"model/{self.ours}={self.options[values[0]]}"

    def write(self, model: Config) -> dict[str, Any]:
        """The keys of config.json for a `model` node; none where it has no such setting."""
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
    node = yaml.safe_load((conf_dir() / "model" / slot / f"{option}.yaml").read_text(encoding="utf-8"))
    return str(node["_target_"])


def symbols(config: Config) -> dict[str, Readout]:
    """The next or the hidden symbol."""
    return {MAIN: Readout(config["vocab_size"])}


def nothing(shapes: Shapes) -> dict[str, Any]:
    """config.json needs to say nothing."""
    return {}


def as_it_is(config: Config) -> Config:
    """A config.json that needs no translation of its own."""
    return config


@dataclass(frozen=True)
class Variant:
    """What may stand behind the layers of a family: one of its architectures.

    Attributes:
        architecture: config.json's word for it.
        rules: where the weights behind the layers are.
        readouts: the answers that are read, of config.json.
        keys: what config.json says of them, of the shapes of our weights.
    """

    architecture: str
    rules: tuple[Rule, ...]
    readouts: Callable[[Config], Mapping[str, Readout]] = symbols
    keys: Callable[[Shapes], dict[str, Any]] = nothing


@dataclass(frozen=True)
class Format:
    """A family of Hugging Face checkpoints.

    Attributes:
        name: on the command line, and config.json's model_type.
        parts: overrides that hold for every checkpoint of the format.
        settings: what differs between them.
        required: keys of config.json that must have this value where they are there, for nothing else can be expressed.
        harmless: keys of config.json that do not change what is computed in evaluation.
        rules: where weights are, up to the last layer.
        variants: what may stand behind it, the richest first.
        prefix: of the names of weights that files of a model without its head leave out.
        beside: beginnings of names of weights that never have it.
        renamed: parts of names that older files spell otherwise.
        ignored: patterns of names of weights that are no parameters.
        filled: roles of weights that it always has, so that a model without them gets zeros.
        segments: the key of config.json that counts segments; None where there is none.
        unread: leaves of our `model` node that do not change what is computed in evaluation.
        flat: config.json with nested or old keys translated, before it is read.
        nested: the opposite, after it is written.
    """

    name: str
    parts: tuple[str, ...]
    settings: tuple[Setting, ...]
    required: Mapping[str, Any]
    harmless: tuple[str, ...]
    rules: tuple[Rule, ...]
    variants: tuple[Variant, ...]
    prefix: str
    beside: tuple[str, ...]
    renamed: Mapping[str, str] = field(default_factory=dict)
    ignored: tuple[str, ...] = ()
    filled: tuple[Role, ...] = ()
    segments: str | None = None
    unread: tuple[str, ...] = ()
    flat: Callable[[Config], Config] = as_it_is
    nested: Callable[[Config], Config] = as_it_is

    def interface(self, config: Config, variant: Variant) -> Interface:
        """What goes into the model of a config.json, and what comes out."""
        segments = 0 if self.segments is None else config.get(self.segments, 2)
        return Interface(config["vocab_size"], segments=segments, readouts=variant.readouts(config))

    def overrides(self, config: Config) -> list[str]:
        """The overrides that make the model of a config.json.

        Raises:
            UsageError: if it asks for something that swapformer does not have.
        """
        flat = self.flat(config)
        for key, value in self.required.items():
            if flat.get(key, value) != value:
                raise UsageError(f"{key} of config.json must be {value!r} for {self.name}, but it is {flat[key]!r}")
        found = [setting.read(flat) for setting in self.settings]
        return [*self.parts, *(override for override in found if override is not None)]

    def unknown(self, config: Config) -> list[str]:
        """Keys of config.json that nothing here reads."""
        known = {key for setting in self.settings for key in setting.theirs} | {
            *self.required,
            *self.harmless,
            *EVERY,
            self.segments,
        }
        return sorted(key for key in self.flat(config) if key not in known)

    def config(self, model: Config) -> dict[str, Any]:
        """The config.json of a `model` node, as far as the format can express it."""
        keys: dict[str, Any] = {}
        for setting in self.settings:
            keys.update(setting.write(model))
        return {
            "model_type": self.name,
            **self.nested({**self.required, **keys}),
            "bos_token_id": None,
            "eos_token_id": None,
            "pad_token_id": None,
            "dtype": "float32",
        }


EVERY = (
    *("architectures", "model_type", "vocab_size", "dtype", "torch_dtype", "transformers_version", "_name_or_path"),
    *("bos_token_id", "eos_token_id", "pad_token_id", "initializer_range", "use_cache", "task_specific_params"),
    *("id2label", "num_labels", "problem_type", "output_attentions", "output_hidden_states", "return_dict"),
    *(
        "label2id",
        "output_past",
        "gradient_checkpointing",
        "finetuning_task",
        "is_encoder_decoder",
        "chunk_size_feed_forward",
    ),
)
"""Keys of every config.json that say nothing of what the model computes."""
